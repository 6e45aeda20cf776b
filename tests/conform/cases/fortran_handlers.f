! A message handler. It receives the number of the message by value, as
! in C. pvmfaddmhf has one argument more than its manual says.
!@ fresh
! In its exit, PVM deletes the handler a second time, and reports that
! the handler does not exist.
!@ differs 2.4: no handler any more: positive\nlibpvm [t#1]: pvm_delmhf(): Not Found => no handler any more: positive
      program handlers
      implicit none
      include 'fpvm3.h'
      integer me, id, info, mid, i
      external handler
      call pvmfmytid(me)
      call pvmfaddmhf(-1, 33, 0, 0, handler, id)
      call show('addmhf', id)
      call pvmfaddmhf(me, 33, -1, 0, handler, info)
      call show('addmhf again', info)
      do i = 1, 3
        call pvmfpsend(me, 33, i, 1, INTEGER4, info)
      end do
      call pvmfpsend(me, 34, i, 1, INTEGER4, info)
      call receive(me, 34, mid)
      call pvmfdelmhf(id, info)
      call show('delmhf', info)
      call pvmfdelmhf(id, info)
      call show('delmhf again', info)
      call pvmfdelmhf(-1, info)
      call show('delmhf below zero', info)
      call pvmfpsend(me, 33, i, 1, INTEGER4, info)
      call receive(me, 33, mid)
      call showsign('no handler any more', mid)
      call pvmfexit(info)
      end

      integer function handler(mid)
      implicit none
      include 'fpvm3.h'
      integer, value :: mid
      integer active, number, info
      call pvmfgetrbuf(active)
      call show('its message', merge(1, 0, active .eq. mid))
      call pvmfunpack(BYTE1, number, 4, 1, info)
      call show('number', number)
      handler = 0
      end
