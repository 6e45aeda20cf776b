! Hosts, one per call.
!@ fresh
      program hosts
      implicit none
      include 'fpvm3.h'
      integer nhost, narch, dtid, speed, info, i, code
      integer seconds, micros, dseconds, dmicros
      character*9 arch
      character*3 short
      character*200 name
      do i = 1, 3
        nhost = 0
        narch = -9
        arch = '---------'
        short = '---'
        call pvmfconfig(nhost, narch, dtid, name, arch, speed, info)
        call show('hosts', nhost)
        call show('formats', narch)
        call showtid('tid', dtid)
        call showtext('arch', arch)
        call show('speed', speed)
        call show('info', info)
      end do
      nhost = -1
      call pvmfconfig(nhost, narch, dtid, short, arch, speed, info)
      call show('anew', nhost)
      call show('cut', merge(1, 0, short .eq. name(1:3)))
      call pvmfmstat(name, info)
      call show('mstat', info)
      call pvmfmstat('.', info)
      call show('mstat of here', info)
      call pvmfmstat('nowhere', info)
      call show('mstat of nowhere', info)
      call pvmfmstat(' ', info)
      call show('mstat of a blank', info)
      call pvmfarchcode('LINUX64', code)
      call show('archcode', code)
      call pvmfarchcode('PDP11', code)
      call show('archcode of none', code)
      call pvmfdelhost('nowhere', info)
      call show('delhost of nowhere', info)
      call pvmfdelhost(name, info)
      call show('delhost of the master', info)
      call pvmfhostsync(dtid, seconds, micros, dseconds, dmicros, info)
      call show('hostsync', info)
      call showsign('seconds', seconds)
      call show('in range', merge(1, 0, micros .ge. 0 .and.
     &  micros .lt. 1000000 .and. dmicros .lt. 1000000))
      call pvmfhostsync(0, seconds, micros, dseconds, dmicros, info)
      call show('hostsync of no host', info)
      call pvmfexit(info)
      end
