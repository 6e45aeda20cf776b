c     Triples a number.
      program child
      include 'fpvm3.h'
      integer number, parent, bufid, info
      call pvmfparent(parent)
      call pvmfrecv(parent, 1, bufid)
      call pvmfunpack(INTEGER4, number, 1, 1, info)
      number = 3 * number
      call pvmfinitsend(PVMDEFAULT, bufid)
      call pvmfpack(INTEGER4, number, 1, 1, info)
      call pvmfsend(parent, 2, info)
      call pvmfexit(info)
      end
