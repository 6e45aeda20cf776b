/* The daemon of a running task is killed. */
//@ fresh
#include "case.h"
#include <signal.h>

int main(void)
{
    char path[4200], line[64];
    FILE *list;
    int me, id = 0;
    case_begin();
    me = pvm_mytid();
    pvm_setopt(PvmAutoErr, 0);
    freopen("/dev/null", "w", stderr);
    snprintf(path, sizeof path, "for p in /proc/[0-9]*; do if [ \"$(cat $p/comm)\" = pvmd ] && tr '\\0' '\\n' < "
             "$p/environ | grep -qx PVM_TMP=%s; then echo ${p#/proc/}; fi; done 2>&-", getenv("PVM_TMP"));
    list = popen(path, "r");
    if (fgets(line, sizeof line, list))
        id = atoi(line);
    SHOW(id > 0);
    kill(id, SIGKILL);
    usleep(200000);
    SHOW(pvm_config(NULL, NULL, NULL));
    SHOW(pvm_recv(-1, -1));
    SHOW(pvm_nrecv(-1, -1));
    SHOW(pvm_mytid() == me);
    pvm_initsend(PvmDataDefault);
    SHOW(pvm_send(me | 0x3fff0, 1));
    SHOW(pvm_exit());
    SHOW(pvm_errno);
    return 0;
}
