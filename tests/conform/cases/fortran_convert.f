! The helpers that convert CHARACTER variables to C strings and back.
      program convert
      use iso_c_binding
      implicit none
      interface
        integer(c_int) function ftocstr(to, room, from, length)
     &    bind(C, name='ftocstr')
          use iso_c_binding
          character(kind=c_char) :: to(*), from(*)
          integer(c_int), value :: room, length
        end function
        integer(c_int) function ctofstr(to, length, from)
     &    bind(C, name='ctofstr')
          use iso_c_binding
          character(kind=c_char) :: to(*), from(*)
          integer(c_int), value :: length
        end function
      end interface
      character*8 place
      place = '########'
      call show('fits', ftocstr(place, 4, 'abc   ', 6))
      call showtext('C', place(1:3) // place(5:8))
      call show('ends', ichar(place(4:4)))
      call show('too long', ftocstr(place, 3, 'abc   ', 6))
      call show('ends', ichar(place(1:1)))
      call show('blank', ftocstr(place, 1, '  ', 2))
      place = '########'
      call show('back', ctofstr(place, 6, 'ab' // c_null_char))
      call showtext('Fortran', place)
      call show('cut', ctofstr(place, 3, 'abcdef' // c_null_char))
      call showtext('Fortran', place)
      end
