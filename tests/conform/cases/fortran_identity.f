! Enrollment and exit.
!@ fresh
      program identity
      implicit none
      include 'fpvm3.h'
      integer tid, parent, again, info, status, host
      call pvmfmytid(tid)
      call showtid('mytid', tid)
      call pvmfparent(parent)
      call show('parent', parent)
      call pvmfpstat(tid, status)
      call show('pstat of oneself', status)
      call pvmfpstat(tid + 99, status)
      call show('pstat of nobody', status)
      call pvmfpstat(17, status)
      call show('pstat of no task', status)
      call pvmftidtohost(tid, host)
      call showtid('tidtohost', host)
      call pvmfsendsig(tid + 99, 10, info)
      call show('sendsig to nobody', info)
      call pvmfsendsig(5, 10, info)
      call show('sendsig to no task', info)
      call pvmfkill(tid + 99, info)
      call show('kill of nobody', info)
      call pvmfkill(-3, info)
      call show('kill of no task', info)
      call pvmfsleep(0)
      call pvmfexit(info)
      call show('exit', info)
      call pvmfexit(info)
      call show('exit again', info)
      call pvmfmytid(again)
      call show('another tid', merge(1, 0, again .ne. tid))
      call pvmfexit(info)
      end
