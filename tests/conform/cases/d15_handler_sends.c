/* D15: a handler may send any number of messages. */
//@ ours-only D15: crashes
#include "case.h"

static int sends(int message)
{
    int i;
    for (i = 0; i < 500; i++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&i, 1, 1);
        if (pvm_send(pvm_mytid(), 2) < 0)
            printf("send %d is refused\n", i);
    }
    return 0;
}

int main(void)
{
    int i, value, in_order = 0;
    case_begin();
    pvm_mytid();
    SHOW(pvm_addmhf(-1, 1, 0, sends) >= 0);
    case_signal(pvm_mytid(), 1);
    for (i = 0; i < 500 && case_own(2) > 0; i++) {
        pvm_upkint(&value, 1, 1);
        in_order += value == i;
    }
    SHOW(in_order);
    pvm_exit();
    return 0;
}
