! A program starts a machine and ends it.
!@ nodaemon
!@ needs /usr/bin/pvmd
      program start
      implicit none
      include 'fpvm3.h'
      integer info, tid
      call pvmfstartpvmd(' -d0  ', 1, info)
      call show('startpvmd', info)
      call pvmfmytid(tid)
      call showtid('mytid', tid)
      call pvmfstartpvmd(' ', 0, info)
      call show('startpvmd again', info)
      call pvmfhalt(info)
      call show('halt', info)
      end
