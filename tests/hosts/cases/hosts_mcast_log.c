/* The ways that multicasts take can be asked for: pvm_tickle writes their numbers to the log, and with the debug mask
 * 0x4000 the log has a line for each multicast. */
//@ ours-only 2.9: skip
//@ fresh
#include "hosts.h"

#define TASKS 4

static void child(void)
{
    while (case_receive(pvm_parent(), -1, PATIENCE) > 0) {
        int size, tag, from;
        pvm_bufinfo(pvm_getrbuf(), &size, &tag, &from);
        pvm_initsend(PvmDataDefault);
        pvm_send(from, tag);
        if (tag == 9)
            return;
    }
}

int main(int argc, char **argv)
{
    static char bytes[10000];
    int tids[TASKS], i, route;
    case_begin();
    if (argc > 1) {
        child();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(case_spawn("child", TASKS, tids));
    tickle(9, 1);
    tickle(6, 0x4000);
    for (route = PvmMcastIterative; route <= PvmMcastBroadcast; route++) {
        pvm_setopt(PvmMcastRoute, route);
        pvm_initsend(PvmDataRaw);
        pvm_pkbyte(bytes, sizeof bytes, 1);
        SHOW(pvm_mcast(tids, TASKS, 5 + route));
        for (i = 0; i < TASKS; i++)
            SHOW(case_receive(tids[i], 5 + route, PATIENCE) > 0);
    }
    tickle(6, 0);
    tickle(9, 0);
    fflush(stdout);
    /* A thread of the daemon writes the log. */
    i = system("i=0; until grep -q 'multicasts: [0-9]' $PVM_TMP/pvml.* || [ $i = 300 ]; do i=$((i + 1)); sleep 0.1; done");
    /* The tid in the line depends on how many tasks there were before. */
    i |= system("grep -h -o 'multicast.*' $PVM_TMP/pvml.* | sed 's/from t[0-9a-f]*/from TID/'");
    pvm_exit();
    return i;
}
