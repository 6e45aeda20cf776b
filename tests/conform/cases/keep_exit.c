/* pvm_exit discards queued messages and deletes handlers; buffers stay. */
#include "case.h"

static int seen(int message)
{
    printf("handler ran\n");
    return 0;
}

int main(void)
{
    int value = 4, message, got = 0, first;
    case_begin();
    first = pvm_mytid();
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    pvm_send(first, 1);
    pvm_send(first, 2);
    message = case_own(1);
    SHOW(pvm_setrbuf(0) == message);
    SHOW(pvm_addmhf(-1, 5, 0, seen) >= 0);
    pvm_setcontext(3);
    SHOW(pvm_exit());
    SHOW(pvm_mytid() != first);
    SHOW(pvm_getcontext());
    pvm_setcontext(0);
    SHOW(pvm_nrecv(-1, -1));
    pvm_setrbuf(message);
    SHOW(pvm_upkint(&got, 1, 1));
    case_signal(pvm_mytid(), 5);
    SHOW(case_receive(-1, 5, 1) > 0);
    pvm_setopt(PvmAutoErr, 0);
    pvm_exit();
    return 0;
}
