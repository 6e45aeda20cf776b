/* Calls that work without a daemon, and calls that fail without one. */
//@ nodaemon
//@ env PVM_TMP=/nonexistent-folder
#include "case.h"
#include <time.h>

int main(void)
{
    int message, value = 5, got = 0, tid = 0x40001;
    struct pvmhostinfo *hosts;
    struct timeval zero = {0, 0};
    case_begin();
    pvm_setopt(PvmAutoErr, 0);
    /* At each call, PVM prints to standard error that it cannot connect. */
    freopen("/dev/null", "w", stderr);
    message = pvm_initsend(PvmDataRaw);
    SHOW(message > 0);
    SHOW(pvm_pkint(&value, 1, 1));
    SHOW(pvm_bufinfo(message, &got, NULL, NULL));
    SHOW(got);
    SHOW(pvm_setrbuf(message));
    SHOW(pvm_upkint(&got, 1, 1));
    SHOW(got);
    SHOW(pvm_getopt(PvmRoute));
    SHOW(pvm_setopt(PvmRoute, PvmRouteDirect));
    SHOW_HEX(pvm_tidtohost(0x80001));
    SHOW(pvm_getcontext());
    SHOW(pvm_setcontext(5));
    SHOW(pvm_export("HOME"));
    SHOW(pvm_unexport("HOME"));
    SHOW(pvm_mytid());
    SHOW(pvm_errno);
    SHOW(pvm_parent());
    SHOW(pvm_recv(-1, -1));
    SHOW(pvm_nrecv(-1, -1));
    SHOW(pvm_trecv(-1, -1, &zero));
    SHOW(pvm_probe(-1, -1));
    SHOW(pvm_spawn("x", NULL, 0, "", 1, &tid));
    SHOW(pvm_config(NULL, NULL, &hosts));
    SHOW(pvm_notify(PvmTaskExit, 1, 1, &tid));
    SHOW(pvm_pstat(0x40001));
    SHOW(pvm_mstat("x"));
    SHOW(pvm_kill(0x40001));
    SHOW(pvm_newcontext());
    SHOW(pvm_freecontext(7));
    SHOW(pvm_tasks(0, NULL, NULL));
    SHOW(pvm_addhosts((char *[]){"x"}, 1, NULL));
    SHOW(pvm_delhosts((char *[]){"x"}, 1, NULL));
    SHOW(pvm_archcode("LINUX64"));
    SHOW(pvm_siblings(NULL));
    SHOW(pvm_psend(0x40001, 1, &value, 1, PVM_INT));
    SHOW(pvm_precv(-1, -1, &value, 1, PVM_INT, NULL, NULL, NULL));
    SHOW(pvm_lookup("x", 0, NULL));
    SHOW(pvm_recvinfo("x", 0, 0));
    SHOW(pvm_delinfo("x", 0, 0));
    SHOW(pvm_getmboxinfo("x", NULL, NULL));
    SHOW(pvm_reg_tasker());
    SHOW(pvm_reg_hoster());
    SHOW(pvm_tickle(1, &value, &got, &got));
    SHOW(pvm_hostsync(0x40000, NULL, NULL));
    SHOW(pvm_halt());
    SHOW(pvm_exit());
    pvm_initsend(PvmDataRaw);
    SHOW(pvm_send(0x40001, 1));
    SHOW(pvm_mcast(&tid, 1, 1));
    SHOW(pvm_setopt(PvmNoReset, 1));
    SHOW(pvm_catchout(NULL));
    return 0;
}
