! All types, there and back, in each encoding.
!@ differs D1: integer8: 0 => integer8: 1
      program packing
      implicit none
      include 'fpvm3.h'
      integer info, me, mid, i
      call pvmfmytid(me)
      call pvmfinitsend(PVMDEFAULT, mid)
      call types(me)
      call pvmfinitsend(PVMRAW, mid)
      call types(me)
! Every other item, and errors.
      call pvmfinitsend(PVMINPLACE, mid)
      call pvmfpack(INTEGER4, me, 1, 2, info)
      call show('in place with a stride', info)
      call pvmfpack(STRING, 'ab', 2, 1, info)
      call show('in place characters', info)
      call pvmfinitsend(PVMDEFAULT, mid)
      call pvmfpack(9, i, 1, 1, info)
      call show('pack of no type', info)
      call pvmfpack(-1, i, 1, 1, info)
      call show('pack of a type below zero', info)
      call pvmfpack(INTEGER4, i, -1, 1, info)
      call show('pack of fewer than none', info)
      call pvmfpack(INTEGER4, i, 0, 1, info)
      call show('pack of none', info)
      call pvmfunpack(9, i, 1, 1, info)
      call show('unpack of no type', info)
      call pvmfunpack(STRING, i, -1, 1, info)
      call show('unpack of fewer than none', info)
      call pvmfsetsbuf(0, mid)
      call pvmfpack(REAL4, i, 1, 1, info)
      call show('pack without a buffer', info)
      call pvmfsetrbuf(0, mid)
      call pvmfunpack(COMPLEX8, i, 1, 1, info)
      call show('unpack without a buffer', info)
      call pvmfexit(info)
      end

      subroutine types(me)
      implicit none
      include 'fpvm3.h'
      integer me, info, mid, bytes, tag, tid, i
      character*7 word, word2
      integer*1 octets(3), octets2(3)
      integer*2 halves(3), halves2(3)
      integer*4 fulls(6), fulls2(6)
      integer*8 longs(2), longs2(2)
      real*4 reals(2), reals2(2)
      real*8 doubles(2), doubles2(2)
      complex*8 pairs(4), pairs2(4)
      complex*16 wides(2), wides2(2)
      data octets /1, -2, 3/, halves /30000, -2, 3/
      data fulls /1, -2, 3, -4, 5, -6/
      data longs /123456789012345_8, -1_8/
      data reals /1.25, -1e30/, doubles /1d300, -0.1d0/
      word = 'seven c'
      do i = 1, 4
        pairs(i) = cmplx(i, -i)
        pairs2(i) = (0.0, 0.0)
      end do
      wides(1) = (1d0, 2d-200)
      wides(2) = (-3d0, 4d0)
      do i = 1, 6
        fulls2(i) = 0
      end do
      call pvmfpack(STRING, word, 7, 1, info)
      call show('STRING', info)
      call pvmfpack(BYTE1, octets, 3, 1, info)
      call show('BYTE1', info)
      call pvmfpack(INTEGER2, halves, 3, 1, info)
      call show('INTEGER2', info)
      call pvmfpack(INTEGER4, fulls, 3, 2, info)
      call show('INTEGER4', info)
      call pvmfpack(INTEGER8, longs, 2, 1, info)
      call show('INTEGER8', info)
      call pvmfpack(REAL4, reals, 2, 1, info)
      call show('REAL4', info)
      call pvmfpack(REAL8, doubles, 2, 1, info)
      call show('REAL8', info)
      call pvmfpack(COMPLEX8, pairs, 2, 3, info)
      call show('COMPLEX8', info)
      call pvmfpack(COMPLEX16, wides, 2, 1, info)
      call show('COMPLEX16', info)
      call pvmfsend(me, 7, info)
      call show('send', info)
      call receive(me, 7, mid)
      call pvmfbufinfo(mid, bytes, tag, tid, info)
      call show('tag', tag)
      call pvmfunpack(STRING, word2, 7, 1, info)
      call showtext('string', word2)
      call pvmfunpack(BYTE1, octets2, 3, 1, info)
      write (*, *) 'byte1', octets2
      call pvmfunpack(INTEGER2, halves2, 3, 1, info)
      write (*, *) 'integer2', halves2
      call pvmfunpack(INTEGER4, fulls2, 3, 2, info)
      write (*, *) 'integer4', fulls2
      call pvmfunpack(INTEGER8, longs2, 2, 1, info)
      call show('integer8', merge(1, 0,
     &  longs2(1) .eq. longs(1) .and. longs2(2) .eq. longs(2)))
      call pvmfunpack(REAL4, reals2, 2, 1, info)
      write (*, *) 'real4', reals2
      call pvmfunpack(REAL8, doubles2, 2, 1, info)
      write (*, *) 'real8', doubles2
      call pvmfunpack(COMPLEX8, pairs2, 2, 3, info)
      write (*, *) 'complex8', pairs2
      call pvmfunpack(COMPLEX16, wides2, 2, 1, info)
      write (*, *) 'complex16', wides2
      call show('all', info)
      call pvmfunpack(INTEGER4, i, 1, 1, info)
      call show('behind the end', info)
      end
