! Classes of mailboxes, one per call. PVM's library always returns the
! first one, and no status.
!@ fresh
!@ own-differs D13: classes: -1\nname: [alpha]\nentries: 1\nindex: 0\nflags: 0\ninfo: -9\nclasses: -1\nname: [alpha]\nentries: 1\nindex: 0\nflags: 0\ninfo: -9\nclasses: -1\nname: [alpha]\nentries: 1\nindex: 0\nflags: 0\ninfo: -9\nclasses: -1\nname: [alpha]\nentries: 1\nindex: 0\nflags: 0\ninfo: -9 => classes: 2\nname: [alpha]\nentries: 1\nindex: 0\nflags: 0\ninfo: 0\nclasses: 2\nname: [bet  ]\nentries: 2\nindex: 0\nindex: 1\nflags: 2\nflags: 2\ninfo: 0\nclasses: 2\nname: [-----]\nentries: -9\ninfo: -32\nclasses: 2\nname: [alpha]\nentries: 1\nindex: 0\nflags: 0\ninfo: 0
!@ own-differs D13: classes: -1\nname: [bet  ]\nentries: 2\nindex: 0\nindex: 1\nflags: 2\nflags: 2\ninfo: -9 => classes: 1\nname: [bet  ]\nentries: 2\nindex: 0\nindex: 1\nflags: 2\nflags: 2\ninfo: 0
      program classes
      implicit none
      include 'fpvm3.h'
      integer mid, index, info, n, i
      call pvmfinitsend(PVMDEFAULT, mid)
      call pvmfputinfo('alpha', mid, PVMMBOXDEFAULT, index)
      call pvmfputinfo('bet', mid, PVMMBOXMULTIINSTANCE, index)
      call pvmfputinfo('bet', mid, PVMMBOXMULTIINSTANCE, index)
      n = -1
      do i = 1, 4
        call one('*', n)
      end do
      n = -1
      call one('be', n)
      n = -1
      call one('gamma', n)
      call pvmfexit(info)
      end

      subroutine one(pattern, n)
      implicit none
      character*(*) pattern
      character*5 name
      integer n, entries, indices(4), owners(4), flags(4), info, i, me
      name = '-----'
      entries = -9
      info = -9
      call pvmfmytid(me)
      call pvmfgetmboxinfo(pattern, name, n, entries, indices, owners,
     &  flags, info)
      call show('classes', n)
      call showtext('name', name)
      call show('entries', entries)
      do i = 1, entries
        call show('index', indices(i))
        if (owners(i) .ne. me) call showtid('owner', owners(i))
      end do
      do i = 1, entries
        call show('flags', flags(i))
      end do
      call show('info', info)
      end
