/* In hpvm, a call that is not allowed in a handler leaves the handler's message unchanged; in PVM 3.4.6 the message is
 * lost. */
//@ differs 2.4: pvm_getrbuf() == message: 0 => pvm_getrbuf() == message: 1
//@ differs 2.4: pvm_upkint(&got, 1, 1): -15 => pvm_upkint(&got, 1, 1): 0
//@ differs 2.4: got: 0 => got: 12
#include "case.h"

static int refused(int message)
{
    int got = 0;
    SHOW(pvm_recvinfo("box", 0, PvmMboxDefault));
    SHOW(pvm_getrbuf() == message);
    SHOW(pvm_upkint(&got, 1, 1));
    SHOW(got);
    return 0;
}

int main(void)
{
    int value = 12;
    case_begin();
    pvm_mytid();
    pvm_setopt(PvmAutoErr, 0);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    SHOW(pvm_putinfo("box", pvm_getsbuf(), PvmMboxDefault));
    SHOW(pvm_addmhf(-1, 1, 0, refused) >= 0);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    pvm_send(pvm_mytid(), 1);
    pvm_send(pvm_mytid(), 3);
    SHOW(case_own(3) > 0);
    pvm_exit();
    return 0;
}
