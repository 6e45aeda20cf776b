! Reduce, gather and scatter.
!@ fresh
!@ differs D1: LONG: 0 => LONG: 1
      program collective
      implicit none
      include 'fpvm3.h'
      integer members
      parameter (members = 4)
      integer me, inum, info, tids(members), n, i
      integer whole(members * 3), part(3), numbers(5)
      integer*2 halves(2)
      integer*8 long
      real*4 reals(2)
      real*8 wide(2)
      complex*8 pair(1)
      complex*16 pairs(1)
      integer*1 octets(2)
      logical spawned, first
      character*240 path
      external PvmMax, PvmMin, PvmSum, PvmProduct, digits
      call pvmfmytid(me)
      first = .not. spawned()
! The first task joins first; the others join in any order.
      call pvmfjoingroup('team', inum)
      if (first) then
        call ownpath(path)
        call pvmfspawn(path, PVMDEFAULT, '*', members - 1, tids, n)
        call show('spawn', n)
      end if
      call pvmfbarrier('team', members, info)

      do i = 1, members * 3
        whole(i) = 100 + i
      end do
      call pvmfscatter(part, whole, 3, INTEGER4, 1, 'team', 0, info)
      if (first) call show('scatter', info)
      do i = 1, 3
        part(i) = part(i) + 1000 * inum
      end do
      do i = 1, members * 3
        whole(i) = 0
      end do
      call pvmfgather(whole, part, 3, INTEGER4, 2, 'team', 0, info)
      if (first) then
        call show('gather', info)
        write (*, '(12i5)') whole
      end if

      do i = 1, 5
        numbers(i) = (inum + 1) * i
      end do
      call pvmfreduce(PvmSum, numbers, 5, INTEGER4, 3, 'team', 0, info)
      if (first) call show('reduce', info)
      if (first) write (*, *) 'sum', numbers
      halves(1) = int(inum, 2)
      halves(2) = int(-inum, 2)
      call pvmfreduce(PvmMax, halves, 2, INTEGER2, 4, 'team', 0, info)
      if (first) write (*, *) 'max', halves
      octets(1) = int(inum, 1)
      octets(2) = int(-inum, 1)
      call pvmfreduce(PvmMin, octets, 2, BYTE1, 5, 'team', 0, info)
      if (first) write (*, *) 'min', octets
      reals(1) = inum + 1
      reals(2) = 0.5
      call pvmfreduce(PvmProduct, reals, 2, REAL4, 6, 'team', 0, info)
      if (first) write (*, *) 'product', reals
      wide(1) = inum + 1
      wide(2) = 0.5d0
      call pvmfreduce(PvmProduct, wide, 2, REAL8, 7, 'team', 0, info)
      if (first) write (*, *) 'product', wide
      pair(1) = cmplx(inum, 1)
      call pvmfreduce(PvmSum, pair, 1, COMPLEX8, 8, 'team', 0, info)
      if (first) write (*, *) 'sum', pair
      pairs(1) = cmplx(inum, 1)
      call pvmfreduce(PvmMax, pairs, 1, COMPLEX16, 9, 'team', 0, info)
      if (first) write (*, *) 'max', pairs
      long = 5000000000_8 + inum
      call pvmfreduce(PvmMax, long, 1, INTEGER8, 10, 'team', 0, info)
      if (first) call show('LONG', merge(1, 0, long .eq. 5000000003_8))
      numbers(1) = 1
      call pvmfreduce(digits, numbers, 1, INTEGER4, 11, 'team', 0, info)
      if (first) call show('a function of the user', numbers(1))
      numbers(1) = inum
      call pvmfreduce(PvmMax, numbers, 1, INTEGER4, 12, 'team', 2, info)
      if (inum .eq. 2 .and. numbers(1) .ne. 3) print *, numbers(1)

      if (first) call errors
! Nobody leaves the group before all have checked their results.
      call pvmfbarrier('team', members, info)
      call pvmfexit(info)
      end

! A user's function for pvmfreduce: adds ten times the second array.
      subroutine digits(what, x, y, count, info)
      implicit none
      integer what, count, info, x(*), y(*), i
      do i = 1, count
        x(i) = x(i) + 10 * y(i)
      end do
      info = 0
      end

      subroutine errors
      implicit none
      include 'fpvm3.h'
      integer info, data(4), type, x, y
      external PvmSum
      call pvmfreduce(PvmSum, data, 0, INTEGER4, 20, 'team', 0, info)
      call show('reduce of none', info)
      call pvmfreduce(PvmSum, data, 1, 77, 20, 'team', 0, info)
      call show('reduce of no type', info)
      call pvmfreduce(PvmSum, data, 1, INTEGER4, 20, 'team', 9, info)
      call show('reduce to nobody', info)
      call pvmfreduce(PvmSum, data, 1, INTEGER4, 20, ' ', 0, info)
      call show('reduce in no name', info)
      call pvmfreduce(PvmSum, data, 1, INTEGER4, 20, 'none', 0, info)
      call show('reduce in no group', info)
      call pvmfgather(data, data, -1, INTEGER4, 20, 'team', 0, info)
      call show('gather of less', info)
      call pvmfgather(data, data, 1, INTEGER4, 20, 'none', 0, info)
      call show('gather in no group', info)
      call pvmfscatter(data, data, 1, INTEGER4, 20, 'team', 9, info)
      call show('scatter from nobody', info)
      call pvmfscatter(data, data, 1, 77, 20, 'team', 0, info)
      call show('scatter of no type', info)
      x = 2
      y = 3
      type = INTEGER4
      call PvmSum(type, x, y, 1, info)
      call show('the operator itself', x)
      type = 77
      call PvmSum(type, x, y, 1, info)
      call show('of no type', info)
      end
