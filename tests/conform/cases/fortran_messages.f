! Sending and receiving.
!@ fresh
      program messages
      implicit none
      include 'fpvm3.h'
      integer me, mid, info, tid, tag, bytes, tids(3), i, again
      integer numbers(4), got(4)
      character*6 word
      data numbers /1, 2, 3, 4/
      call pvmfmytid(me)
      call pvmfnrecv(-1, -1, mid)
      call show('nrecv of nothing', mid)
      call pvmfprobe(-1, -1, mid)
      call show('probe of nothing', mid)
      call pvmftrecv(-1, -1, 0, 1000, mid)
      call show('trecv of nothing', mid)
      call pvmftrecv(-1, -1, 0, 0, mid)
      call show('trecv at once', mid)
      call pvmfsend(me, 1, info)
      call show('send of nothing', info)
      call pvmfinitsend(PVMDEFAULT, mid)
      call pvmfpack(INTEGER4, numbers, 4, 1, info)
      call pvmfsend(me, 5, info)
      call show('send', info)
      call pvmfsend(me, -5, info)
      call show('send with a tag below zero', info)
      call pvmfsend(0, 5, info)
      call show('send to no task', info)
      call pvmfsend(me + 99, 5, info)
      call show('send to nobody', info)
! With -1 seconds there is no limit.
      call pvmftrecv(me, 5, -1, 0, mid)
      call showsign('trecv', mid)
      call pvmfunpack(INTEGER4, got, 4, 1, info)
      call show('last', got(4))
      call pvmfsend(me, 6, info)
      call pvmfsleep(1)
 10   call pvmfprobe(me, 6, mid)
      if (mid .eq. 0) goto 10
      call pvmfprobe(me, 6, again)
      call show('probe twice', merge(1, 0, mid .eq. again))
      call pvmfbufinfo(mid, bytes, tag, tid, info)
      call show('bytes', bytes)
      call pvmfrecv(-1, 6, again)
      call showsign('recv', again)
      call pvmfnrecv(-1, 6, again)
      call show('nothing left', again)
! A multicast to the task itself, which is skipped, and to a tid without
! a task.
      tids(1) = me
      tids(2) = me + 99
      call pvmfmcast(2, tids, 8, info)
      call show('mcast', info)
      call pvmfnrecv(-1, 8, mid)
      call show('to oneself', mid)
      call pvmfmcast(0, tids, 8, info)
      call show('mcast to none', info)
      call pvmfmcast(-1, tids, 8, info)
      call show('mcast to fewer', info)
      tids(2) = 3
      call pvmfmcast(2, tids, 8, info)
      call show('mcast to no task', info)
      call pvmfmcast(1, tids, -8, info)
      call show('mcast with a tag below zero', info)
! Numbers that are packed and sent by one call.
      call pvmfpsend(me, 9, numbers, 4, INTEGER4, info)
      call show('psend', info)
      do i = 1, 4
        got(i) = 0
      end do
      call pvmfprecv(me, 9, got, 4, INTEGER4, tid, tag, bytes, info)
      call show('precv', info)
      call show('from', merge(1, 0, tid .eq. me))
      call show('tag', tag)
      call show('bytes', bytes)
      call show('sum', got(1) + got(2) + got(3) + got(4))
      call pvmfpsend(me, 9, 'abcdef', 6, BYTE1, info)
      word = '------'
      call pvmfprecv(-1, -1, word, 4, BYTE1, tid, tag, bytes, info)
      call showtext('cut', word)
      call show('bytes', bytes)
      call pvmfpsend(me, 9, 'abcdef', 6, STRING, info)
      call show('psend of a string', info)
      call pvmfprecv(me, 9, word, 6, STRING, tid, tag, bytes, info)
      call show('precv of a string', info)
      call pvmfpsend(me, 9, word, 6, 44, info)
      call show('psend of no type', info)
      call pvmfpsend(0, 9, word, 6, BYTE1, info)
      call show('psend to no task', info)
      call pvmfexit(info)
      end
