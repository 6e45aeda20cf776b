! Tasks, one per call.
!@ fresh
      program list
      implicit none
      include 'fpvm3.h'
      integer me, info, tids(2), n, mid, i
      logical spawned
      character*240 path
      call pvmfmytid(me)
      if (spawned()) then
        call pvmfparent(n)
        call sendempty(n, 1)
        call pvmfrecv(-1, 2, mid)
        call pvmfexit(info)
        stop
      end if
      call ownpath(path)
      call pvmfspawn(path, PVMDEFAULT, '*', 2, tids, n)
      call receive(tids(1), 1, mid)
      call receive(tids(2), 1, mid)
      do i = 1, 4
        n = 0
        call one(0, n)
      end do
      n = -1
      call one(0, n)
! A new list that contains only one task.
      n = -1
      call one(tids(1), n)
      call one(tids(1), n)
      n = -1
      call one(5, n)
      n = -1
      call one(me + 999, n)
      call one(0, n)
      call sendempty(tids(1), 2)
      call sendempty(tids(2), 2)
      call pvmfexit(info)
      end

      subroutine one(where, n)
      implicit none
      integer where, n, tid, parent, host, flag, info
      character*11 name
      tid = -9
      parent = -9
      host = -9
      flag = -9
      info = -9
      name = '-----------'
      call pvmftasks(where, n, tid, parent, host, flag, name, info)
      call show('tasks', n)
      call showtid('tid', tid)
      call showtid('parent', parent)
      call showtid('host', host)
      call show('flag', flag)
      call showtext('end of the name', name(11:11))
      call show('info', info)
      end
