! Calls that PVM's manual describes and PVM's library lacks.
!@ ours-only 3: skip
      program more
      implicit none
      include 'fpvm3.h'
      integer info, old, mid, inner, me, value
      integer length, ctx, tag, wid, enc, crc, src, dst
      call pvmfadvise(PVMDONTROUTE, info)
      call show('advise', info)
      call pvmfgetopt(PVMROUTE, value)
      call show('the route', value)
      call pvmfadvise(9, info)
      call show('advise of nothing', info)
      call pvmfserror(0, old)
      call show('serror', old)
      call pvmfserror(1, old)
      call show('serror', old)
      call pvmfmytid(me)
      call pvmftidtoh(me, value)
      call showtid('tidtoh', value)
      value = 42
      call pvmfinitsend(PVMDEFAULT, inner)
      call pvmfpack(INTEGER4, value, 1, 1, info)
      call pvmfsetsbuf(0, old)
      call pvmfsetminfo(inner, 3, 17, 5, me, me + 1, info)
      call show('setminfo', info)
      call pvmfgetminfo(inner, length, ctx, tag, wid, enc, crc, src,
     &  dst, info)
      call show('getminfo', info)
      write (*, '(5(i0, 1x), z8)') length, ctx, tag, wid, crc, enc
      call show('tids', merge(1, 0, src .eq. me .and. dst .eq. me + 1))
      call pvmfgetminfo(9999, length, ctx, tag, wid, enc, crc, src,
     &  dst, info)
      call show('getminfo of nothing', info)
      call pvmfinitsend(PVMDEFAULT, mid)
      call pvmfpkmesg(inner, info)
      call show('pkmesg', info)
      call pvmfpkmesgbody(inner, info)
      call show('pkmesgbody', info)
      call pvmfsend(me, 7, info)
      call receive(me, 7, mid)
      call pvmfupkmesg(mid, inner)
      call showsign('upkmesg', inner)
      value = 0
      call pvmfunpack(INTEGER4, value, 1, 1, info)
      call show('the body', value)
      call pvmfsetrbuf(inner, old)
      value = 0
      call pvmfunpack(INTEGER4, value, 1, 1, info)
      call show('within', value)
      call pvmfupkmesg(mid, inner)
      call show('upkmesg at the end', inner)
      call pvmfjoingrp('team', value)
      call show('joingrp', value)
      call pvmffrzgrp('team', 1, value)
      call show('frzgrp', value)
      call pvmflvgrp('team', info)
      call show('lvgrp', info)
      call pvmfexit(info)
      end
