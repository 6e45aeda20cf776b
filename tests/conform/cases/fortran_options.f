! Options and contexts.
!@ fresh
!@ own-differs D13: freecontext: 5 => freecontext: 0
!@ own-differs D13: context after it: 1 => context after it: 0
!@ own-differs D13: freecontext again: 1 => libpvm [t#1]: pvm_freecontext(): Not Found\nfreecontext again: -32
      program options
      implicit none
      include 'fpvm3.h'
      integer old, value, info, ctx, mine, i
      call pvmfmytid(i)
      do i = 0, 26
        call pvmfgetopt(i, value)
        call show('getopt', value)
      end do
      call pvmfsetopt(PVMROUTE, PVMROUTEDIRECT, old)
      call show('setopt of the route', old)
      call pvmfgetopt(PVMROUTE, value)
      call show('the route', value)
      call pvmfsetopt(PVMFRAGSIZE, 8192, old)
      call show('setopt of the size', old)
      call pvmfsetopt(PVMFRAGSIZE, 3, old)
      call show('too small', old)
      call pvmfsetopt(99, 1, old)
      call show('no option', old)
      call pvmfsetopt(PVMRESVTIDS, 1, old)
      call show('reserved', old)
      call pvmfgetcontext(ctx)
      call show('context', ctx)
      call pvmfnewcontext(mine)
      call showsign('newcontext', mine)
      call pvmfsetcontext(5, old)
      call show('setcontext', old)
      call pvmfgetcontext(ctx)
      call show('context', ctx)
      call pvmffreecontext(mine, info)
      call show('freecontext', info)
      call pvmfgetcontext(ctx)
      call show('context after it', merge(1, 0, ctx .eq. mine))
      call pvmffreecontext(mine, info)
      call show('freecontext again', merge(1, info, info .eq. mine))
      call pvmfsetcontext(0, old)
      call pvmfsetopt(PVMAUTOERR, 0, old)
      call show('setopt of errors', old)
      call pvmfsetopt(99, 1, old)
      call show('said nothing', old)
      call pvmfexit(info)
      end
