/*
 * pvm3.h - the C interface of hpvm, compatible with PVM 3.4.6
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * Works with C89 and later and with C++98 and later. Include <stdio.h> before this
 * header to get the declaration of pvm_catchout().
 */
#ifndef _PVM3_H_
#define _PVM3_H_

#include <sys/time.h>

/* ---- version of the interface ---- */

#define PVM_VER "3.4.6"
#define PVM_MAJOR_VERSION 3
#define PVM_MINOR_VERSION 4
#define PVM_PATCH_VERSION 6

/* ---- encodings: pvm_initsend, pvm_mkbuf ---- */

#define PvmDataDefault 0 /* readable on every host */
#define PvmDataRaw 1     /* native bytes */
#define PvmDataInPlace 2 /* the data is read when it is sent, not when it is packed */
#define PvmDataTrace 4   /* a trace event of the program */
#define PvmDataFoo PvmDataDefault

/* ---- data types: pvm_psend, pvm_precv and the collective group functions ---- */

#define PVM_STR 0
#define PVM_BYTE 1
#define PVM_SHORT 2
#define PVM_INT 3
#define PVM_FLOAT 4
#define PVM_CPLX 5
#define PVM_DOUBLE 6
#define PVM_DCPLX 7
#define PVM_LONG 8
#define PVM_USHORT 9
#define PVM_UINT 10
#define PVM_ULONG 11

/* ---- flags of pvm_spawn, to be or-ed ---- */

#define PvmTaskDefault 0
#define PvmTaskHost 1       /* "where" names a host */
#define PvmTaskArch 2       /* "where" names an architecture */
#define PvmTaskDebug 4      /* run under a debugger */
#define PvmTaskTrace 8      /* trace events */
#define PvmMppFront 16      /* on the front end of a multiprocessor */
#define PvmHostCompl 32     /* on the hosts that "where" does not name */
#define PvmNoSpawnParent 64 /* the new tasks have no parent */

/* ---- kinds of pvm_notify ---- */

#define PvmTaskExit 1
#define PvmHostDelete 2
#define PvmHostAdd 3
#define PvmRouteAdd 4
#define PvmRouteDelete 5
#define PvmNotifyCancel 256 /* or-ed to a kind: cancels that request */

/* ---- options of pvm_setopt and pvm_getopt, and values of some ---- */

#define PvmRoute 1
#define PvmDontRoute 1
#define PvmAllowDirect 2
#define PvmRouteDirect 3
#define PvmDebugMask 2
#define PvmAutoErr 3
#define PvmOutputTid 4
#define PvmOutputCode 5
#define PvmTraceTid 6
#define PvmTraceCode 7
#define PvmTraceBuffer 8
#define PvmTraceOptions 9
#define PvmTraceFull 1
#define PvmTraceTime 2
#define PvmTraceCount 3
#define PvmFragSize 10
#define PvmResvTids 11
#define PvmSelfOutputTid 12
#define PvmSelfOutputCode 13
#define PvmSelfTraceTid 14
#define PvmSelfTraceCode 15
#define PvmSelfTraceBuffer 16
#define PvmSelfTraceOptions 17
#define PvmShowTids 18
#define PvmPollType 19
#define PvmPollConstant 1
#define PvmPollSleep 2
#define PvmPollTime 20
#define PvmOutputContext 21
#define PvmTraceContext 22
#define PvmSelfOutputContext 23
#define PvmSelfTraceContext 24
#define PvmNoReset 25
/* Not in PVM 3.4, and for pvm_getopt only: how many items from hosts of another kind this task has converted. */
#define PvmItemsConverted 1001
/* Not in PVM 3.4, and for pvm_getopt only: how many KiB of long messages this task has copied. */
#define PvmKibCopied 1002
/* Not in PVM 3.4: instance n of a group waits n times this number of us before it sends to one task. */
#define PvmBackoff 1003
/* Not in PVM 3.4: how the bodies of multicasts reach other hosts. */
#define PvmMcastRoute 1004
#define PvmMcastAutomatic 0  /* the daemon chooses for each message */
#define PvmMcastIterative 1  /* from the sender's host to each host */
#define PvmMcastBinomial 2   /* along a binomial tree of hosts */
#define PvmMcastHypercube 3  /* along the edges of a hypercube of hosts */
#define PvmMcastBroadcast 4  /* in datagrams to all hosts at once */
/* Not in PVM 3.4: the host (its tid) at which barriers of this task's groups meet; 0: as the machine chooses. */
#define PvmGroupHost 1005
/* Not in PVM 3.4, and for pvm_getopt only: to how many tasks of other hosts this task's messages take a fabric. */
#define PvmFabricTasks 1006
/* Not in PVM 3.4, and for pvm_getopt only: how the last body of 32 KiB or more was copied that this task has sent to a
 * task of its host, or packed; 0: there was none. */
#define PvmCopyWay 1007
#define PvmCopyCached 1   /* by both tasks through the caches */
#define PvmCopyPastIn 2   /* the sender's copy bypasses the caches */
#define PvmCopyPastOut 3  /* the receiver's does */
#define PvmCopyPastBoth 4 /* both do */
#define PvmCopyString 5   /* by the processor's string instructions */
#define PvmCopyOnce 6     /* by the receiver, out of the sender's memory */

/* ---- the owner of a trace mask: pvm_settmask, pvm_gettmask ---- */

#define PvmTaskSelf 0
#define PvmTaskChild 1

/* ---- the context in which every program begins ---- */

#define PvmBaseContext 0

/* ---- mailboxes: flags of pvm_putinfo, pvm_recvinfo, pvm_delinfo ---- */

#define PvmMboxDefault 0
#define PvmMboxPersistent 1     /* outlives its owner */
#define PvmMboxMultiInstance 2  /* one class, many entries */
#define PvmMboxOverWritable 4   /* others may replace or delete it */
#define PvmMboxFirstAvail 8     /* the first entry at or after the index */
#define PvmMboxReadAndDelete 16 /* delete the entry */
#define PvmMboxWaitForInfo 32   /* wait until there is an entry */
#define PvmMboxMaxFlag 512
#define PvmMboxDirectIndexShift 10
#define PvmMboxMaxDirectIndex (1U << (31 - PvmMboxDirectIndexShift))

/* Converts an index to bits of the flags (to 0 if it is out of range), and back. */
#define PvmMboxDirectIndex(index) \
    ((unsigned)(index) < PvmMboxMaxDirectIndex ? (int)((unsigned)(index) << PvmMboxDirectIndexShift) : 0)
#define PvmMboxDirectIndexOf(flags) (((unsigned)(flags) >> PvmMboxDirectIndexShift) & (PvmMboxMaxDirectIndex - 1))

/* Mailbox classes that the system keeps for itself. */
#define PVMNORESETCLASS "###_PVM_NO_RESET_###"
#define PVMHOSTERCLASS "###_PVM_HOSTER_###"
#define PVMTASKERCLASS "###_PVM_TASKER_###"
#define PVMTRACERCLASS "###_PVM_TRACER_###"
#define PVMRMCLASS "###_PVM_RM_###"

/* ---- error codes ---- */

#define PvmOk 0
#define PvmBadParam (-2)
#define PvmMismatch (-3)
#define PvmOverflow (-4)
#define PvmNoData (-5)
#define PvmNoHost (-6)
#define PvmNoFile (-7)
#define PvmDenied (-8)
#define PvmNoMem (-10)
#define PvmBadMsg (-12)
#define PvmSysErr (-14)
#define PvmNoBuf (-15)
#define PvmNoSuchBuf (-16)
#define PvmNullGroup (-17)
#define PvmDupGroup (-18)
#define PvmNoGroup (-19)
#define PvmNotInGroup (-20)
#define PvmNoInst (-21)
#define PvmHostFail (-22)
#define PvmNoParent (-23)
#define PvmNotImpl (-24)
#define PvmDSysErr (-25)
#define PvmBadVersion (-26)
#define PvmOutOfRes (-27)
#define PvmDupHost (-28)
#define PvmCantStart (-29)
#define PvmAlready (-30)
#define PvmNoTask (-31)
#define PvmNotFound (-32)
#define PvmExists (-33)
#define PvmHostrNMstr (-34)
#define PvmParentNotSet (-35)
#define PvmIPLoopback (-36)

/* Names that programs for PVM 3.3 use. */
#define PvmNoEntry PvmNotFound
#define PvmDupEntry PvmDenied

/* ---- temporary file names, for programs that rely on these macros ---- */

#ifdef NOTMPNAM
#define PVMTMPNAMFUN(name) pvmtmpnam(name)
#else
#define PVMTMPNAMFUN(name) tmpnam(name)
#endif
#if !defined(NOTMPNAM) && defined(L_tmpnam)
#define PVMTMPNAMLEN L_tmpnam
#else
#define PVMTMPNAMLEN 128
#endif

/* ---- structures ---- */

/* A host, from pvm_config. */
struct pvmhostinfo {
    int hi_tid;
    char *hi_name;
    char *hi_arch;
    int hi_speed;
    int hi_dsig; /* data signature: how the host stores numbers */
};

/* A task, from pvm_tasks. */
struct pvmtaskinfo {
    int ti_tid;
    int ti_ptid; /* its parent */
    int ti_host; /* the host on which it runs */
    int ti_flag;
    char *ti_a_out; /* the argument of pvm_spawn */
    int ti_pid;
};

/* The envelope of a message: pvm_getminfo, pvm_setminfo. */
struct pvmminfo {
    int len; /* bytes */
    int ctx; /* context */
    int tag;
    int wid; /* pairs a reply with its request */
    int enc; /* encoding */
    int crc; /* unused */
    int src;
    int dst;
};

/* A class of mailbox entries, from pvm_getmboxinfo. The arrays have mi_nentries elements. */
struct pvmmboxinfo {
    char *mi_name;
    int mi_nentries;
    int *mi_indices;
    int *mi_owners;
    int *mi_flags;
};

/* ---- functions ---- */

/* In older sources, encloses the parameter list of a prototype. */
#undef __ProtoGlarp__
#define __ProtoGlarp__(parameters) parameters

#ifdef __cplusplus
extern "C" {
#endif

/* The code of the last error. */
extern int pvm_errno;

/* joining and leaving the virtual machine */
int pvm_mytid(void);
int pvm_parent(void);
int pvm_exit(void);
int pvm_halt(void);
int pvm_start_pvmd(int argc, char **argv, int block);

/* tasks */
int pvm_spawn(char *file, char **argv, int flags, char *where, int count, int *tids);
int pvm_siblings(int **tids);
int pvm_export(char *variable);
int pvm_unexport(char *variable);
int pvm_kill(int tid);
int pvm_sendsig(int tid, int signal_number);
int pvm_pstat(int tid);
int pvm_tasks(int where, int *count, struct pvmtaskinfo **tasks);
int pvm_tidtohost(int tid);
int pvm_notify(int what, int tag, int count, int *tids);
int pvm_getnoresets(int **tids, int *count);
#ifdef EOF
int pvm_catchout(FILE *file);
#endif

/* hosts */
int pvm_config(int *host_count, int *format_count, struct pvmhostinfo **hosts);
int pvm_addhosts(char **hosts, int count, int *results);
int pvm_delhosts(char **hosts, int count, int *results);
int pvm_mstat(char *host);
int pvm_archcode(char *architecture);
int pvm_hostsync(int host, struct timeval *clock, struct timeval *delta);
int pvm_tickle(int argument_count, int *arguments, int *result_count, int *results);

/* options and errors */
int pvm_setopt(int what, int value);
int pvm_getopt(int what);
int pvm_perror(char *message);
char *pvm_strerror(void);
char *pvm_version(void);

/* buffers */
int pvm_initsend(int encoding);
int pvm_mkbuf(int encoding);
int pvm_freebuf(int mid);
int pvm_getsbuf(void);
int pvm_getrbuf(void);
int pvm_setsbuf(int mid);
int pvm_setrbuf(int mid);
int pvm_bufinfo(int mid, int *bytes, int *tag, int *tid);
int pvm_getminfo(int mid, struct pvmminfo *info);
int pvm_setminfo(int mid, struct pvmminfo *info);

/* packing */
int pvm_packf(const char *format, ...);
int pvm_pkbyte(char *data, int count, int stride);
int pvm_pkcplx(float *data, int count, int stride);
int pvm_pkdcplx(double *data, int count, int stride);
int pvm_pkdouble(double *data, int count, int stride);
int pvm_pkfloat(float *data, int count, int stride);
int pvm_pkint(int *data, int count, int stride);
int pvm_pklong(long *data, int count, int stride);
int pvm_pkshort(short *data, int count, int stride);
int pvm_pkuint(unsigned int *data, int count, int stride);
int pvm_pkulong(unsigned long *data, int count, int stride);
int pvm_pkushort(unsigned short *data, int count, int stride);
int pvm_pkstr(char *text);
int pvm_pkmesg(int mid);
int pvm_pkmesgbody(int mid);

/* unpacking */
int pvm_unpackf(const char *format, ...);
int pvm_upkbyte(char *data, int count, int stride);
int pvm_upkcplx(float *data, int count, int stride);
int pvm_upkdcplx(double *data, int count, int stride);
int pvm_upkdouble(double *data, int count, int stride);
int pvm_upkfloat(float *data, int count, int stride);
int pvm_upkint(int *data, int count, int stride);
int pvm_upklong(long *data, int count, int stride);
int pvm_upkshort(short *data, int count, int stride);
int pvm_upkuint(unsigned int *data, int count, int stride);
int pvm_upkulong(unsigned long *data, int count, int stride);
int pvm_upkushort(unsigned short *data, int count, int stride);
int pvm_upkstr(char *text);
int pvm_upkmesg(void);

/* messages */
int pvm_send(int tid, int tag);
int pvm_mcast(int *tids, int count, int tag);
int pvm_psend(int tid, int tag, void *data, int count, int type);
int pvm_recv(int tid, int tag);
int pvm_nrecv(int tid, int tag);
int pvm_trecv(int tid, int tag, struct timeval *timeout);
int pvm_probe(int tid, int tag);
int pvm_precv(int tid, int tag, void *data, int count, int type, int *from_tid, int *from_tag, int *bytes);
int (*pvm_recvf(int (*match)(int, int, int)))(int, int, int);
int pvm_getfds(int **descriptors);

/* contexts and message handlers */
int pvm_getcontext(void);
int pvm_setcontext(int context);
int pvm_newcontext(void);
int pvm_freecontext(int context);
int pvm_addmhf(int tid, int tag, int context, int (*handler)(int));
int pvm_delmhf(int handler_id);

/* mailboxes */
int pvm_putinfo(char *name, int mid, int flags);
int pvm_recvinfo(char *name, int index, int flags);
int pvm_delinfo(char *name, int index, int flags);
int pvm_getmboxinfo(char *pattern, int *class_count, struct pvmmboxinfo **classes);

/* the older form of mailboxes */
int pvm_insert(char *name, int index, int value);
int pvm_lookup(char *name, int index, int *value);
int pvm_delete(char *name, int index);

/* groups */
int pvm_joingroup(char *group);
int pvm_lvgroup(char *group);
int pvm_gsize(char *group);
int pvm_gettid(char *group, int instance);
int pvm_getinst(char *group, int tid);
int pvm_barrier(char *group, int count);
int pvm_lanbarr(char *group, int count);
int pvm_bcast(char *group, int tag);
int pvm_freezegroup(char *group, int count);
int pvm_gather(void *result, void *data, int count, int type, int tag, char *group, int root);
int pvm_scatter(void *result, void *data, int count, int type, int tag, char *group, int root);
int pvm_reduce(void (*combine)(int *, void *, void *, int *, int *), void *data, int count, int type, int tag,
               char *group, int root);

/* built-in functions for pvm_reduce */
void PvmMax(int *type, void *result, void *data, int *count, int *error);
void PvmMin(int *type, void *result, void *data, int *count, int *error);
void PvmSum(int *type, void *result, void *data, int *count, int *error);
void PvmProduct(int *type, void *result, void *data, int *count, int *error);

/* registration of tasks that do a part of the daemon's work */
int pvm_reg_hoster(void);
int pvm_reg_tasker(void);
int pvm_reg_rm(struct pvmhostinfo **hosts);
int pvm_reg_tracer(int trace_context, int trace_tag, int output_context, int output_tag, char *mask, int buffer,
                   int options);

/* programs and directories */
char *pvmgetrsh(void);
char *pvmgettmp(void);
#ifdef NOTMPNAM
char *pvmtmpnam(char *name);
#endif

#ifdef __cplusplus
}
#endif

#endif /* _PVM3_H_ */
