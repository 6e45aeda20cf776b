/* The tids to which a message may go, and sends to tasks that do not exist. */
#include "case.h"

int main(void)
{
    int tids[4], me;
    case_begin();
    me = pvm_mytid();
    SHOW(pvm_send(me, 1)); /* no buffer yet */
    SHOW(pvm_mcast(&me, 1, 1));
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&me, 1, 1);
    SHOW(pvm_send(0, 1));
    SHOW(pvm_send(-1, 1));
    SHOW(pvm_send(pvm_tidtohost(me), 1));
    SHOW(pvm_send(0x80000000, 1));
    SHOW(pvm_send(0x40000001, 1));
    SHOW(pvm_send(me, -1));
    SHOW(pvm_send(me, 0x80010001));
    SHOW(pvm_send(me | 0x3ffff, 1)); /* no such task: no error */
    SHOW(pvm_send(0x3ffc0001, 1));   /* no such host: no error */
    SHOW(pvm_mcast(tids, 0, 1));
    SHOW(pvm_mcast(tids, -1, 1));
    tids[0] = me | 0x3fff0;
    tids[1] = me | 0x3fff1;
    SHOW(pvm_mcast(tids, 2, -1));
    SHOW(pvm_mcast(tids, 2, 1));
    tids[1] = 0;
    SHOW(pvm_mcast(tids, 2, 1));
    SHOW(pvm_setopt(PvmAutoErr, 0));
    SHOW(pvm_send(0, 1));
    SHOW(pvm_errno);
    SHOW(pvm_send(me, 0x7fffffff));
    SHOW(pvm_errno);
    SHOW(case_own(0x7fffffff) > 0);
    pvm_exit();
    return 0;
}
