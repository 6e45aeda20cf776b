/* A handler may free its message or keep it. */
#include "case.h"

static int kept;

static int frees(int message)
{
    SHOW(pvm_freebuf(message));
    SHOW(pvm_getrbuf());
    return 0;
}

static int keeps(int message)
{
    kept = pvm_setrbuf(0);
    SHOW(kept == message);
    return 0;
}

int main(void)
{
    int value = 12, got = 0;
    case_begin();
    pvm_mytid();
    SHOW(pvm_addmhf(-1, 1, 0, frees) >= 0);
    SHOW(pvm_addmhf(-1, 2, 0, keeps) >= 0);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    pvm_send(pvm_mytid(), 1);
    pvm_send(pvm_mytid(), 2);
    pvm_send(pvm_mytid(), 3);
    SHOW(case_own(3) > 0);
    pvm_setrbuf(kept);
    SHOW(pvm_upkint(&got, 1, 1));
    SHOW(got);
    pvm_exit();
    return 0;
}
