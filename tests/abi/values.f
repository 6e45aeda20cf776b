! Tests calls that need no daemon and have known results. Prints "right"
! or the error.
      program values
      implicit none
      include 'fpvm3.h'
      integer info, mid, old, bytes, tag, tid, i
      integer*2 halves(3), halves2(3)
      integer*8 long, long2
      real*8 reals(4), reals2(4)
      complex*16 pair, pair2
      character*8 word, word2
      logical right
      right = .true.
      call pvmfinitsend(PVMDATADEFAULT, mid)
      call check('initsend', mid .gt. 0, right)
      word = 'abcdefgh'
      long = -5000000000_8
      pair = (1.5d0, -2.5d0)
      do i = 1, 3
        halves(i) = int(-i, 2)
        halves2(i) = 0
      end do
      do i = 1, 4
        reals(i) = i / 4.0d0
        reals2(i) = 0
      end do
      call pvmfpack(STRING, word, 8, 1, info)
      call check('pack STRING', info .eq. PvmOk, right)
      call pvmfpack(INTEGER2, halves, 3, 1, info)
      call pvmfpack(INTEGER8, long, 1, 1, info)
      call pvmfpack(REAL8, reals, 2, 2, info)
      call pvmfpack(COMPLEX16, pair, 1, 1, info)
      call check('pack COMPLEX16', info .eq. PvmOk, right)
      call pvmfgetsbuf(old)
      call check('getsbuf', old .eq. mid, right)
      call pvmfbufinfo(mid, bytes, tag, tid, info)
      call check('bufinfo', bytes .eq. 60, right)
      call pvmfsetsbuf(0, old)
      call pvmfsetrbuf(mid, old)
      word2 = ' '
      call pvmfunpack(BYTE1, word2, 8, 1, info)
      call check('unpack BYTE1', word2 .eq. word, right)
      call pvmfunpack(INTEGER2, halves2, 3, 1, info)
      call check('unpack INTEGER2', halves2(3) .eq. -3, right)
      call pvmfunpack(INTEGER8, long2, 1, 1, info)
      call check('unpack INTEGER8', long2 .eq. long, right)
      call pvmfunpack(REAL8, reals2, 2, 2, info)
      call check('unpack REAL8', reals2(1) .eq. reals(1), right)
      call check('stride', reals2(3) .eq. reals(3), right)
      call check('left out', reals2(2) .eq. 0.0d0, right)
      call pvmfunpack(COMPLEX16, pair2, 1, 1, info)
      call check('unpack COMPLEX16', pair2 .eq. pair, right)
      call pvmffreebuf(mid, info)
      call check('freebuf', info .eq. PvmOk, right)
      call pvmfsetopt(PVMAUTOERR, 0, old)
      call check('setopt', old .eq. 1, right)
      call pvmfunpack(INTEGER4, i, 1, 1, info)
      call check('no buffer', info .eq. PvmNoBuf, right)
      call pvmfpack(9, i, 1, 1, info)
      call check('no type', info .eq. PvmBadParam, right)
      call pvmftidtohost(262147, i)
      call check('tidtohost', i .eq. 262144, right)
      if (right) print *, 'right'
      if (.not. right) stop 1
      end

      subroutine check(what, good, right)
      character*(*) what
      logical good, right
      if (.not. good) print *, 'wrong: ', what
      right = right .and. good
      end
