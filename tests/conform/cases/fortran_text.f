! Long names, and texts of errors. PVM's wrappers have room for 256
! characters (contract 6.5); those of hpvm have no limit.
!@ own-differs 6.5: mstat of a long name: -2 => mstat of a long name: -6
!@ own-differs 6.5: putinfo: -2 => putinfo: 0
!@ own-differs 6.5: archcode: -2 => libpvm [t#1]: pvm_archcode(): Not Found\narchcode: -32
      program text
      implicit none
      include 'fpvm3.h'
      integer i, info, mid, tid
      character*300 long
      call pvmfmytid(tid)
      call showtid('mytid', tid)
      do i = 1, 300
        long(i:i) = 'x'
      end do
      call pvmfmstat(long(1:200), info)
      call show('mstat of a name', info)
      call pvmfmstat(long, info)
      call show('mstat of a long name', info)
      call pvmfinitsend(PVMDEFAULT, mid)
      call pvmfputinfo(long, mid, PVMMBOXDEFAULT, info)
      call show('putinfo', info)
      call pvmfarchcode(long, info)
      call show('archcode', info)
      call pvmfpack(INTEGER4, i, -1, 1, info)
      call pvmfperror('words  ', info)
      call show('perror', info)
      call pvmfperror(' ', info)
      call show('perror of nothing', info)
      call pvmfexit(info)
      end
