! Mailboxes.
!@ fresh
      program mailbox
      implicit none
      include 'fpvm3.h'
      integer mid, index, info, value, got
      value = 7
      call pvmfinitsend(PVMDEFAULT, mid)
      call pvmfpack(INTEGER4, value, 1, 1, info)
      call pvmfputinfo('alpha', mid, PVMMBOXDEFAULT, index)
      call show('putinfo', index)
      call pvmfputinfo('beta  ', mid, PVMMBOXMULTIINSTANCE, index)
      call show('putinfo', index)
      call pvmfputinfo('beta', mid, PVMMBOXMULTIINSTANCE +
     &  PVMMBOXPERSISTENT, index)
      call show('putinfo', index)
      call pvmfputinfo(' ', mid, PVMMBOXDEFAULT, index)
      call show('putinfo without a name', index)
      call pvmfrecvinfo('beta', 1, PVMMBOXDEFAULT, mid)
      call showsign('recvinfo', mid)
      got = 0
      call pvmfunpack(INTEGER4, got, 1, 1, info)
      call show('value', got)
      call pvmfrecvinfo('beta', 5, PVMMBOXDEFAULT, mid)
      call show('recvinfo of nothing', mid)
      call pvmfrecvinfo('beta', -1, PVMMBOXDEFAULT, mid)
      call show('recvinfo below zero', mid)
      call pvmfdelinfo('alpha', 0, PVMMBOXDEFAULT, info)
      call show('delinfo', info)
      call pvmfdelinfo('alpha', 0, PVMMBOXDEFAULT, info)
      call show('delinfo again', info)
      call pvmfdelinfo('alpha', -3, PVMMBOXDEFAULT, info)
      call show('delinfo below zero', info)
      call pvmfdelinfo('beta', 1, PVMMBOXDEFAULT, info)
      call show('delinfo', info)
      call pvmfexit(info)
      end
