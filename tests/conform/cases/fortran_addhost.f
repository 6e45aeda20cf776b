! Hosts that cannot be added.
!@ fresh
!@ may-differ D24: addhost: -36 => addhost: -6
      program addhost
      implicit none
      integer info
      call pvmfaddhost('no such host', info)
      call show('addhost', info)
      call pvmfaddhost('nowhere.invalid', info)
      call show('addhost', info)
      end
