/* pvm_mcast: every receiver gets one message, the caller none. */
#include "case.h"

static int child(void)
{
    int parent = pvm_parent(), value = 0, more;
    pvm_recv(parent, 1);
    pvm_upkint(&value, 1, 1);
    more = pvm_nrecv(parent, 1);
    pvm_recv(parent, 2);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    pvm_pkint(&more, 1, 1);
    more = pvm_nrecv(parent, 1);
    pvm_pkint(&more, 1, 1);
    pvm_send(parent, 3);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int tids[8], count, i, value = 42, got[3];
    case_begin();
    if (argc > 1)
        return child();
    pvm_mytid();
    SHOW(case_spawn("child", 3, tids));
    count = 3;
    tids[count++] = tids[0]; /* twice */
    tids[count++] = pvm_mytid();
    tids[count++] = pvm_mytid() | 0x3fff0; /* no task */
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    SHOW(pvm_mcast(tids, count, 1));
    SHOW(case_receive(-1, 1, 0.2));
    case_signal(tids[0], 2);
    case_signal(tids[1], 2);
    case_signal(tids[2], 2);
    for (i = 0; i < 3; i++) {
        SHOW(case_receive(tids[i], 3, 5) > 0);
        pvm_upkint(got, 3, 1);
        printf("child %d got %d, more %d %d\n", i, got[0], got[1], got[2]);
    }
    i = pvm_mytid();
    SHOW(pvm_mcast(&i, 1, 1));
    SHOW(case_receive(-1, 1, 0.2));
    pvm_exit();
    return 0;
}
