! A family: spawn, siblings, notify, kill, output.
!@ fresh
      program family
      implicit none
      include 'fpvm3.h'
      integer me, info, tids(4), mid, n, i, tid
      logical spawned
      character*240 path
      call pvmfmytid(me)
      if (spawned()) then
        call child
        stop
      end if
      call ownpath(path)
      call pvmfsiblings(n, 0, tid)
      call show('siblings', n)
      call show('oneself', merge(1, 0, tid .eq. me))
      tid = 77
      call pvmfsiblings(n, -1, tid)
      call show('sibling below', tid)
      call pvmfsiblings(n, 1, tid)
      call show('sibling beyond', tid)
      call pvmfspawn('no such program', PVMDEFAULT, '*', 2, tids, n)
      call show('spawn of nothing', n)
      call show('why', tids(2))
      call pvmfspawn(path, PVMHOST, '*', 1, tids, n)
      call show('spawn on the host *', n)
      call show('why', tids(1))
      call pvmfspawn(path, PVMARCH, 'CRAY', 1, tids, n)
      call show('spawn on a Cray', n)
      call show('why', tids(1))
      call pvmfspawn(path, PVMDEFAULT, '*', 0, tids, n)
      call show('spawn of none', n)
      call pvmfspawn(path, PVMHOST, '.', 3, tids, n)
      call show('spawn', n)
      call pvmfnotify(PVMTASKEXIT, 20, 3, tids, info)
      call show('notify', info)
      call pvmfnotify(77, 20, 3, tids, info)
      call show('notify of no kind', info)
      call pvmfnotify(PVMTASKEXIT, -20, 3, tids, info)
      call show('notify with a tag below zero', info)
      do i = 1, 3
        call receive(tids(i), 10, mid)
        call pvmfunpack(INTEGER4, n, 1, 1, info)
        call show('its siblings', n)
        call pvmfunpack(INTEGER4, n, 1, 1, info)
        call show('the same order', n)
        call pvmfunpack(INTEGER4, tid, 1, 1, info)
        call show('its parent', merge(1, 0, tid .eq. me))
      end do
! Ends the children: by a kill, by a signal and by a message.
      call pvmfkill(tids(1), info)
      call show('kill', info)
      call pvmfsendsig(tids(2), 9, info)
      call show('sendsig', info)
      call sendempty(tids(3), 11)
      do i = 1, 3
        call receive(-1, 20, mid)
        call pvmfunpack(INTEGER4, tid, 1, 1, info)
        call show('gone', merge(1, 0, tid .eq. tids(1) .or.
     &    tid .eq. tids(2) .or. tid .eq. tids(3)))
      end do
      call pvmfpstat(tids(1), info)
      call show('pstat', info)
! The output of a child: pvmfexit returns after all of it has arrived.
      call pvmfsetopt(PVMSHOWTIDS, 0, info)
      call pvmfcatchout(0, info)
      call show('no catchout', info)
      call pvmfcatchout(1, info)
      call show('catchout', info)
      call pvmfspawn(path, PVMARCH, 'LINUX64', 1, tids, n)
      call show('spawn', n)
      call receive(tids(1), 10, mid)
      call sendempty(tids(1), 11)
      call pvmfexit(info)
      call show('exit', info)
      end

      subroutine child
      implicit none
      include 'fpvm3.h'
      integer me, parent, n, i, tid, same, mid, info, last
      call pvmfmytid(me)
      call pvmfparent(parent)
      same = 1
      last = 0
      call pvmfsiblings(n, 0, tid)
      do i = 0, n - 1
        call pvmfsiblings(n, i, tid)
        if (tid .le. last) same = 0
        last = tid
      end do
      call pvmfinitsend(PVMDEFAULT, mid)
      call pvmfpack(INTEGER4, n, 1, 1, info)
      call pvmfpack(INTEGER4, same, 1, 1, info)
      call pvmfpack(INTEGER4, parent, 1, 1, info)
      call pvmfsend(parent, 10, info)
      call pvmfrecv(parent, 11, mid)
      write (*, '(a)') 'the line of a child'
      call pvmfexit(info)
      end
