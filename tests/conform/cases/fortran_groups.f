! Groups: members, barriers, broadcasts, and the codes.
!@ fresh
!@ differs D6: barrier of none: -3 => barrier of none: -2
      program groups
      implicit none
      include 'fpvm3.h'
      integer me, inum, info, size, tid, mid, tids(2), n, i
      logical spawned
      character*240 path
      call pvmfmytid(me)
      if (spawned()) then
        call member
        stop
      end if
      call pvmfgsize('  ', size)
      call show('gsize without a name', size)
      call pvmfjoingroup(' ', inum)
      call show('joingroup without a name', inum)
      call pvmflvgroup('team', info)
      call show('lvgroup of no group', info)
      call pvmfgetinst('team', me, inum)
      call show('getinst in no group', inum)
      call pvmfgettid('team', 0, tid)
      call show('gettid in no group', tid)
      call pvmfbarrier('team', 1, info)
      call show('barrier of no group', info)
      call pvmfbcast('team', 5, info)
      call show('bcast to no group', info)
      call pvmffreezegroup('team', 1, info)
      call show('freezegroup of no group', info)
      call pvmfjoingroup('team    ', inum)
      call show('joingroup', inum)
      call pvmfjoingroup('team', inum)
      call show('joingroup again', inum)
      call pvmfgetinst('team', me, inum)
      call show('getinst', inum)
      call pvmfgetinst('team', me + 50, inum)
      call show('getinst of another', inum)
      call pvmfgettid('team', 1, tid)
      call show('gettid of nobody', tid)
      call pvmfinitsend(PVMDEFAULT, mid)
      call pvmfbcast('team', 5, info)
      call show('bcast to oneself', info)
      call ownpath(path)
      call pvmfspawn(path, PVMDEFAULT, '*', 2, tids, n)
      call show('spawn', n)
      call pvmfbarrier('team', 3, info)
      call show('barrier', info)
      call pvmfgsize('team', size)
      call show('gsize', size)
      do i = 0, 2
        call pvmfgettid('team', i, tid)
        call show('known', merge(1, 0, tid .eq. me .or.
     &    tid .eq. tids(1) .or. tid .eq. tids(2)))
      end do
      call pvmfbcast('team', 6, info)
      call show('bcast', info)
      do i = 1, 2
        call receive(tids(i), 7, mid)
        call showsign('answer', mid)
      end do
      call pvmffreezegroup('team', 3, info)
      call show('freezegroup', info)
      call pvmffreezegroup('team', 3, info)
      call show('freezegroup again', info)
      call pvmfbarrier('team', -1, info)
      call show('barrier of all', info)
      call pvmfjoingroup('alone', inum)
      call show('another group', inum)
      call pvmflvgroup('alone', info)
      call show('lvgroup', info)
      call pvmflvgroup('alone', info)
      call show('lvgroup again', info)
      call pvmfjoingroup('empty', inum)
      call pvmfbarrier('empty', 0, info)
      call show('barrier of none', info)
      call pvmfexit(info)
      end

      subroutine member
      implicit none
      include 'fpvm3.h'
      integer inum, info, mid, parent
      call pvmfparent(parent)
      call pvmfjoingroup('team', inum)
      call pvmfbarrier('team', 3, info)
      call receive(parent, 6, mid)
      call sendempty(parent, 7)
      call pvmffreezegroup('team', 3, info)
      call pvmfbarrier('team', -1, info)
      call pvmfexit(info)
      end
