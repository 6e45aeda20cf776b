! A host that cannot be added.
!@ fresh
      program addhost
      implicit none
      integer info
      call pvmfaddhost('no such host', info)
      call show('addhost', info)
      end
