/* Traces of the group calls. PVM 3.4.6 also traces its communication with the group server. */
//@ fresh
//@ hostfile * ep=$DEBIAN_PVM/bin
#include "trace.h"

int main(int argc, char **argv)
{
    static const int inside[] = {TEV_MKBUF,   TEV_FREEBUF, TEV_SETSBUF, TEV_SETRBUF, TEV_GETSBUF,    TEV_GETRBUF,
                                 TEV_PKINT,   TEV_UPKINT,  TEV_PKSTR,   TEV_UPKSTR,  TEV_SETCONTEXT, TEV_MYTID,
                                 TEV_SEND,    TEV_RECV,    TEV_TRECV,   TEV_SETOPT,  TEV_NOTIFY,     TEV_BUFINFO,
                                 TEV_GETINFO, TEV_SPAWN,   TEV_NRECV,   TEV_PSTAT,   TEV_INITSEND,   TEV_MHF_INVOKE,
                                 TEV_PKBYTE,  TEV_UPKBYTE, TEV_MCAST,   TEV_PROBE,   TEV_TASKS,      TEV_CONFIG,
                                 -1};
    int values[4] = {1, 2, 3, 4}, result[16], me;
    case_begin();
    if (argc > 1) {
        me = pvm_mytid();
        pvm_setopt(PvmAutoErr, 0);
        pvm_joingroup("there before"); /* starts PVM's group server before the traces begin */
        trace_to(argv[2], PvmTraceFull, inside);
        pvm_joingroup("g");
        pvm_joingroup("g");
        pvm_joingroup(NULL);
        pvm_gsize("g");
        pvm_gsize("none");
        pvm_getinst("g", me);
        pvm_gettid("g", 0);
        pvm_gettid("g", 5);
        pvm_barrier("g", 1);
        pvm_barrier("none", 1);
        pvm_initsend(PvmDataDefault);
        pvm_bcast("g", 4);
        pvm_reduce(PvmSum, values, 4, PVM_INT, 5, "g", 0);
        pvm_reduce(PvmSum, values, 4, 99, 5, "g", 0);
        pvm_gather(result, values, 4, PVM_INT, 6, "g", 0);
        pvm_scatter(result, values, 2, PVM_DOUBLE, 6, "g", 0);
        pvm_lvgroup("g");
        pvm_lvgroup("g");
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    trace_run("member");
    trace_collect_tasks();
    pvm_exit();
    return 0;
}
