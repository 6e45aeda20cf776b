! fpvm3.h - the constants of PVM 3.4 for Fortran
!
! SPDX-License-Identifier: Apache-2.0
!
! Include it in each program unit that calls PVM, in fixed or in free
! form. The calls are subroutines with an implicit interface; where one
! unit passes data of several types to the same call, gfortran 10 and
! later need -fallow-argument-mismatch or -std=legacy.

! spawn flags, to be added up
      integer PVMTASKDEFAULT
      integer PVMTASKHOST
      integer PVMTASKARCH
      integer PVMTASKDEBUG
      integer PVMTASKTRACE
      integer PVMMPPFRONT
      integer PVMHOSTCOMPL
      integer PVMNOSPAWNPARENT
      parameter (PVMTASKDEFAULT   = 0)
      parameter (PVMTASKHOST      = 1)
      parameter (PVMTASKARCH      = 2)
      parameter (PVMTASKDEBUG     = 4)
      parameter (PVMTASKTRACE     = 8)
      parameter (PVMMPPFRONT      = 16)
      parameter (PVMHOSTCOMPL     = 32)
      parameter (PVMNOSPAWNPARENT = 64)

! shorter names of some of them
      integer PVMHOST
      integer PVMARCH
      integer PVMDEBUG
      integer PVMTRACE
      parameter (PVMHOST  = 1)
      parameter (PVMARCH  = 2)
      parameter (PVMDEBUG = 4)
      parameter (PVMTRACE = 8)

! encodings: pvmfinitsend, pvmfmkbuf
      integer PVMDATADEFAULT
      integer PVMDATARAW
      integer PVMDATAINPLACE
      integer PVMDATATRACE
      integer PVMDEFAULT
      integer PVMRAW
      integer PVMINPLACE
      parameter (PVMDATADEFAULT = 0)
      parameter (PVMDATARAW     = 1)
      parameter (PVMDATAINPLACE = 2)
      parameter (PVMDATATRACE   = 4)
      parameter (PVMDEFAULT     = 0)
      parameter (PVMRAW         = 1)
      parameter (PVMINPLACE     = 2)

! data types: pvmfpack, pvmfpsend, pvmfreduce and their kin
      integer STRING
      integer BYTE1
      integer INTEGER2
      integer INTEGER4
      integer REAL4
      integer COMPLEX8
      integer REAL8
      integer COMPLEX16
      integer INTEGER8
      parameter (STRING    = 0)
      parameter (BYTE1     = 1)
      parameter (INTEGER2  = 2)
      parameter (INTEGER4  = 3)
      parameter (REAL4     = 4)
      parameter (COMPLEX8  = 5)
      parameter (REAL8     = 6)
      parameter (COMPLEX16 = 7)
      parameter (INTEGER8  = 8)

! kinds of pvmfnotify
      integer PVMTASKEXIT
      integer PVMHOSTDELETE
      integer PVMHOSTADD
      integer PVMROUTEADD
      integer PVMROUTEDELETE
      integer PVMNOTIFYCANCEL
      parameter (PVMTASKEXIT     = 1)
      parameter (PVMHOSTDELETE   = 2)
      parameter (PVMHOSTADD      = 3)
      parameter (PVMROUTEADD     = 4)
      parameter (PVMROUTEDELETE  = 5)
      parameter (PVMNOTIFYCANCEL = 256)

! options: pvmfsetopt, pvmfgetopt; an S means the task's own
      integer PVMROUTE
      integer PVMDEBUGMASK
      integer PVMAUTOERR
      integer PVMOUTPUTTID
      integer PVMOUTPUTCODE
      integer PVMTRACETID
      integer PVMTRACECODE
      integer PVMTRACEBUFFER
      integer PVMTRACEOPTIONS
      integer PVMFRAGSIZE
      integer PVMRESVTIDS
      integer PVMSOUTPUTTID
      integer PVMSOUTPUTCODE
      integer PVMSTRACETID
      integer PVMSTRACECODE
      integer PVMSTRACEBUFFER
      integer PVMSTRACEOPTIONS
      integer PVMSHOWTIDS
      integer PVMPOLLTYPE
      integer PVMPOLLTIME
      integer PVMOUTPUTCTX
      integer PVMTRACECTX
      integer PVMSOUTPUTCTX
      integer PVMSTRACECTX
      integer PVMNORESET
      integer PVMBACKOFF
      integer PVMMCASTROUTE
      integer PVMGROUPHOST
      integer PVMCOPYWAY
      integer PVMMCASTAUTOMATIC
      integer PVMMCASTITERATIVE
      integer PVMMCASTBINOMIAL
      integer PVMMCASTHYPERCUBE
      integer PVMMCASTBROADCAST
      parameter (PVMROUTE         = 1)
      parameter (PVMDEBUGMASK     = 2)
      parameter (PVMAUTOERR       = 3)
      parameter (PVMOUTPUTTID     = 4)
      parameter (PVMOUTPUTCODE    = 5)
      parameter (PVMTRACETID      = 6)
      parameter (PVMTRACECODE     = 7)
      parameter (PVMTRACEBUFFER   = 8)
      parameter (PVMTRACEOPTIONS  = 9)
      parameter (PVMFRAGSIZE      = 10)
      parameter (PVMRESVTIDS      = 11)
      parameter (PVMSOUTPUTTID    = 12)
      parameter (PVMSOUTPUTCODE   = 13)
      parameter (PVMSTRACETID     = 14)
      parameter (PVMSTRACECODE    = 15)
      parameter (PVMSTRACEBUFFER  = 16)
      parameter (PVMSTRACEOPTIONS = 17)
      parameter (PVMSHOWTIDS      = 18)
      parameter (PVMPOLLTYPE      = 19)
      parameter (PVMPOLLTIME      = 20)
      parameter (PVMOUTPUTCTX     = 21)
      parameter (PVMTRACECTX      = 22)
      parameter (PVMSOUTPUTCTX    = 23)
      parameter (PVMSTRACECTX     = 24)
      parameter (PVMNORESET       = 25)
! Not in PVM 3.4.
      parameter (PVMBACKOFF       = 1003)
      parameter (PVMMCASTROUTE    = 1004)
      parameter (PVMGROUPHOST     = 1005)
      parameter (PVMCOPYWAY       = 1007)
      parameter (PVMMCASTAUTOMATIC = 0)
      parameter (PVMMCASTITERATIVE = 1)
      parameter (PVMMCASTBINOMIAL = 2)
      parameter (PVMMCASTHYPERCUBE = 3)
      parameter (PVMMCASTBROADCAST = 4)

! values of some options
      integer PVMDONTROUTE
      integer PVMALLOWDIRECT
      integer PVMROUTEDIRECT
      integer PVMTRACEFULL
      integer PVMTRACETIME
      integer PVMTRACECOUNT
      integer PVMPOLLCONSTANT
      integer PVMPOLLSLEEP
      parameter (PVMDONTROUTE    = 1)
      parameter (PVMALLOWDIRECT  = 2)
      parameter (PVMROUTEDIRECT  = 3)
      parameter (PVMTRACEFULL    = 1)
      parameter (PVMTRACETIME    = 2)
      parameter (PVMTRACECOUNT   = 3)
      parameter (PVMPOLLCONSTANT = 1)
      parameter (PVMPOLLSLEEP    = 2)

! mailbox flags, to be added up
      integer PVMMBOXDEFAULT
      integer PVMMBOXPERSISTENT
      integer PVMMBOXMULTIINSTANCE
      integer PVMMBOXOVERWRITABLE
      integer PVMMBOXFIRSTAVAIL
      integer PVMMBOXREADANDDELETE
      integer PVMMBOXWAITFORINFO
      parameter (PVMMBOXDEFAULT       = 0)
      parameter (PVMMBOXPERSISTENT    = 1)
      parameter (PVMMBOXMULTIINSTANCE = 2)
      parameter (PVMMBOXOVERWRITABLE  = 4)
      parameter (PVMMBOXFIRSTAVAIL    = 8)
      parameter (PVMMBOXREADANDDELETE = 16)
      parameter (PVMMBOXWAITFORINFO   = 32)

! results below zero
      integer PvmOk
      integer PvmBadParam
      integer PvmMismatch
      integer PvmOverflow
      integer PvmNoData
      integer PvmNoHost
      integer PvmNoFile
      integer PvmDenied
      integer PvmNoMem
      integer PvmBadMsg
      integer PvmSysErr
      integer PvmNoBuf
      integer PvmNoSuchBuf
      integer PvmNullGroup
      integer PvmDupGroup
      integer PvmNoGroup
      integer PvmNotInGroup
      integer PvmNoInst
      integer PvmHostFail
      integer PvmNoParent
      integer PvmNotImpl
      integer PvmDSysErr
      integer PvmBadVersion
      integer PvmOutOfRes
      integer PvmDupHost
      integer PvmCantStart
      integer PvmAlready
      integer PvmNoTask
      integer PvmNotFound
      integer PvmExists
      integer PvmHostrNMstr
      integer PvmParentNotSet
      integer PvmIPLoopback
      parameter (PvmOk           = 0)
      parameter (PvmBadParam     = -2)
      parameter (PvmMismatch     = -3)
      parameter (PvmOverflow     = -4)
      parameter (PvmNoData       = -5)
      parameter (PvmNoHost       = -6)
      parameter (PvmNoFile       = -7)
      parameter (PvmDenied       = -8)
      parameter (PvmNoMem        = -10)
      parameter (PvmBadMsg       = -12)
      parameter (PvmSysErr       = -14)
      parameter (PvmNoBuf        = -15)
      parameter (PvmNoSuchBuf    = -16)
      parameter (PvmNullGroup    = -17)
      parameter (PvmDupGroup     = -18)
      parameter (PvmNoGroup      = -19)
      parameter (PvmNotInGroup   = -20)
      parameter (PvmNoInst       = -21)
      parameter (PvmHostFail     = -22)
      parameter (PvmNoParent     = -23)
      parameter (PvmNotImpl      = -24)
      parameter (PvmDSysErr      = -25)
      parameter (PvmBadVersion   = -26)
      parameter (PvmOutOfRes     = -27)
      parameter (PvmDupHost      = -28)
      parameter (PvmCantStart    = -29)
      parameter (PvmAlready      = -30)
      parameter (PvmNoTask       = -31)
      parameter (PvmNotFound     = -32)
      parameter (PvmExists       = -33)
      parameter (PvmHostrNMstr   = -34)
      parameter (PvmParentNotSet = -35)
      parameter (PvmIPLoopback   = -36)

! older names of two of them; the second differs from that of C
      integer PvmNoEntry
      integer PvmDupEntry
      parameter (PvmNoEntry  = -32)
      parameter (PvmDupEntry = -33)
