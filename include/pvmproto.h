/*
 * pvmproto.h - reserved tags and contexts of hpvm, compatible with PVM 3.4.6
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Needed by programs that register as hoster, tasker, tracer or resource manager, or that
 * collect output themselves.
 */
#ifndef _PVMPROTO_H_
#define _PVMPROTO_H_

/* ---- versions of the protocols: servers, daemons, tasks ---- */

#ifndef SDPROTOCOL
#define SDPROTOCOL 4302
#endif
#ifndef DDPROTOCOL
#define DDPROTOCOL 2316
#endif
#ifndef TDPROTOCOL
#define TDPROTOCOL 1318
#endif

/* ---- registered servers ---- */

#define SM_FIRST ((int)0x80040001)
#define SM_SPAWN (SM_FIRST + 0)
#define SM_EXEC (SM_FIRST + 1)
#define SM_EXECACK (SM_FIRST + 2)
#define SM_TASK (SM_FIRST + 3)
#define SM_CONFIG (SM_FIRST + 4)
#define SM_ADDHOST (SM_FIRST + 5)
#define SM_DELHOST (SM_FIRST + 6)
#define SM_ADD (SM_FIRST + 7)
#define SM_ADDACK (SM_FIRST + 8)
#define SM_NOTIFY (SM_FIRST + 9)
#define SM_TASKX (SM_FIRST + 10)
#define SM_HOSTX (SM_FIRST + 11)
#define SM_HANDOFF (SM_FIRST + 12)
#define SM_SCHED (SM_FIRST + 13)
#define SM_STHOST (SM_FIRST + 14)
#define SM_STHOSTACK (SM_FIRST + 15)
#define SM_STTASK (SM_FIRST + 16)
#define SM_LAST (SM_FIRST + 16)

/* ---- between daemons ---- */

#define DM_FIRST ((int)0x80020001)
#define DM_ADD (DM_FIRST + 0)
#define DM_ADDACK (DM_FIRST + 1)
#define DM_EXEC (DM_FIRST + 2)
#define DM_EXECACK (DM_FIRST + 3)
#define DM_SENDSIG (DM_FIRST + 4)
#define DM_HTUPD (DM_FIRST + 5)
#define DM_HTUPDACK (DM_FIRST + 6)
#define DM_HTCOMMIT (DM_FIRST + 7)
#define DM_SLCONF (DM_FIRST + 8)
#define DM_STARTACK (DM_FIRST + 9)
#define DM_TASK (DM_FIRST + 10)
#define DM_TASKACK (DM_FIRST + 11)
#define DM_DELHOST (DM_FIRST + 12)
#define DM_DELHOSTACK (DM_FIRST + 13)
#define DM_NULL (DM_FIRST + 14)
#define DM_TASKOUT (DM_FIRST + 15)
#define DM_PSTAT (DM_FIRST + 16)
#define DM_PSTATACK (DM_FIRST + 17)
#define DM_HALT (DM_FIRST + 18)
#define DM_MCA (DM_FIRST + 19)
#define DM_NOTIFY (DM_FIRST + 20)
#define DM_NOTIFYACK (DM_FIRST + 21)
#define DM_DB (DM_FIRST + 22)
#define DM_DBACK (DM_FIRST + 23)
#define DM_RESET (DM_FIRST + 24)
#define DM_RESETACK (DM_FIRST + 25)
#define DM_HTDEL (DM_FIRST + 26)
#define DM_HOSTSYNC (DM_FIRST + 27)
#define DM_HOSTSYNCACK (DM_FIRST + 28)
#define DM_LAST (DM_FIRST + 28)

/* ---- from a task to its daemon ---- */

#define TM_FIRST ((int)0x80010001)
#define TM_CONNECT (TM_FIRST + 0)
#define TM_CONN2 (TM_FIRST + 1)
#define TM_EXIT (TM_FIRST + 2)
#define TM_ADDHOST (TM_FIRST + 3)
#define TM_DELHOST (TM_FIRST + 4)
#define TM_CONFIG (TM_FIRST + 5)
#define TM_MSTAT (TM_FIRST + 6)
#define TM_HALT (TM_FIRST + 7)
#define TM_TICKLE (TM_FIRST + 8)
#define TM_SPAWN (TM_FIRST + 9)
#define TM_PSTAT (TM_FIRST + 10)
#define TM_SENDSIG (TM_FIRST + 11)
#define TM_TASK (TM_FIRST + 12)
#define TM_MCA (TM_FIRST + 13)
#define TM_NOTIFY (TM_FIRST + 14)
#define TM_DB (TM_FIRST + 15)
#define TM_SCHED (TM_FIRST + 16)
#define TM_TASKER (TM_FIRST + 17)
#define TM_HOSTER (TM_FIRST + 18)
#define TM_TRACER (TM_FIRST + 19)
#define TM_HOSTSYNC (TM_FIRST + 20)
#define TM_SETOPT (TM_FIRST + 21)
#define TM_GETOPT (TM_FIRST + 22)
#define TM_CONTEXT (TM_FIRST + 23)
#define TM_SHMCONN (TM_FIRST + 24)
#define TM_LAST (TM_FIRST + 24)

/* requests of TM_DB */
#define TMDB_PUT 1
#define TMDB_REMOVE 2
#define TMDB_GET 3
#define TMDB_NAMES 4
#define TMDB_RESET 5

/* settings of TM_SETOPT */
#define TS_OUTTID 1
#define TS_OUTCTX 2
#define TS_OUTTAG 3
#define TS_TRCTID 4
#define TS_TRCCTX 5
#define TS_TRCTAG 6

/* ---- accepted by every task ---- */

#define TC_FIRST ((int)0x80030001)
#define TC_CONREQ (TC_FIRST + 0)
#define TC_CONACK (TC_FIRST + 1)
#define TC_TASKEXIT (TC_FIRST + 2)
#define TC_NOOP (TC_FIRST + 3)
#define TC_OUTPUT (TC_FIRST + 4)
#define TC_SETTRACE (TC_FIRST + 5)
#define TC_SETTMASK (TC_FIRST + 6)
#define TC_SETTRCBUF (TC_FIRST + 7)
#define TC_SETTRCOPT (TC_FIRST + 8)
#define TC_SHMAT (TC_FIRST + 9)
#define TC_OUTPUTX (TC_FIRST + 10)
#define TC_SIBLINGS (TC_FIRST + 11)
#define TC_LAST (TC_FIRST + 11)

/* second word of collected output if it is not a length */
#define TO_EOF 0
#define TO_SPAWN (-1)
#define TO_NEW (-2)

/* ---- where a task finds its daemon: directory, user ---- */

#ifdef SHAREDTMP
#define TDSOCKNAME "%s/pvmd.%d.%s"
#else
#define TDSOCKNAME "%s/pvmd.%d"
#endif

/* ---- reserved contexts ---- */

#define BASECONTEXT 0
#define SYSCTX_FIRST 0x7ffff
#define SYSCTX_TC (SYSCTX_FIRST - 0)
#define SYSCTX_TM (SYSCTX_FIRST - 1)
#define SYSCTX_SG (SYSCTX_FIRST - 2)
#define SYSCTX_DG (SYSCTX_FIRST - 3)
#define SYSCTX_RS4 (SYSCTX_FIRST - 4)
#define SYSCTX_RS5 (SYSCTX_FIRST - 5)
#define SYSCTX_RS6 (SYSCTX_FIRST - 6)
#define SYSCTX_RS7 (SYSCTX_FIRST - 7)
#define SYSCTX_RS8 (SYSCTX_FIRST - 8)
#define SYSCTX_RS9 (SYSCTX_FIRST - 9)
#define SYSCTX_LAST (SYSCTX_FIRST - 9)
#define NUM_SYSCTX (SYSCTX_FIRST - SYSCTX_LAST + 1)

#endif /* _PVMPROTO_H_ */
