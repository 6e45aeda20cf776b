! Subroutines of all Fortran cases.

! Prints a number with a name.
      subroutine show(what, value)
      character*(*) what
      integer value
      write (*, '(a, '': '', i0)') what, value
      end

! Prints the sign of a number, for numbers of which only the sign is the
! same in every run.
      subroutine showsign(what, value)
      character*(*) what
      integer value
      if (value .gt. 0) then
        write (*, '(a, '': positive'')') what
      else
        call show(what, value)
      end if
      end

! Prints a tid; the runner numbers tids by first appearance.
      subroutine showtid(what, tid)
      character*(*) what
      integer tid, i
      character*8 digits
      if (tid .le. 0) then
        call show(what, tid)
        return
      end if
      write (digits, '(z8)') tid
      do i = 1, 8
        if (digits(i:i) .ge. 'A' .and. digits(i:i) .le. 'F')
     &    digits(i:i) = char(ichar(digits(i:i)) + 32)
      end do
      write (*, '(a, '': t'', a)') what, trim(adjustl(digits))
      end

! Prints a text, including blanks.
      subroutine showtext(what, text)
      character*(*) what, text
      write (*, '(a, '': ['', a, '']'')') what, text
      end

! Returns the path of this program, for cases that spawn themselves.
      subroutine ownpath(path)
      character*(*) path
      call get_command_argument(0, path)
      end

! Returns whether this task was spawned.
      logical function spawned()
      integer parent
      call pvmfparent(parent)
      spawned = parent .gt. 0
      end

! Receives with a limit of five seconds, so that a lost message is a
! line of output and not a timeout.
      subroutine receive(tid, tag, mid)
      integer tid, tag, mid
      call pvmftrecv(tid, tag, 5, 0, mid)
      end

! Sends an empty message.
      subroutine sendempty(tid, tag)
      integer tid, tag, old, mid, info
      call pvmfmkbuf(0, mid)
      call pvmfsetsbuf(mid, old)
      call pvmfsend(tid, tag, info)
      call pvmffreebuf(mid, info)
      call pvmfsetsbuf(old, mid)
      end
