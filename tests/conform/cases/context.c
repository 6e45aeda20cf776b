/* Contexts: new, set, free, matching. */
//@ fresh
//@ differs D18: pvm_freecontext(0): 262147 => pvm_freecontext(0): -2
#include "case.h"

int main(void)
{
    int first, second, message, value = 7, got = 0;
    struct pvmminfo info;
    case_begin();
    pvm_setopt(PvmAutoErr, 0);
    SHOW(pvm_getcontext());
    first = pvm_newcontext();
    SHOW_HEX(first & ~0x3ffff);
    SHOW((first & 0x3ffff) < 10); /* a console may have taken some contexts before */
    second = pvm_newcontext();
    SHOW(second - first);
    SHOW(pvm_setcontext(first));
    SHOW(pvm_getcontext() == first);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    SHOW(pvm_send(pvm_mytid(), 4));
    SHOW(pvm_setcontext(0) == first);
    SHOW(case_receive(-1, 4, 0.3)); /* another context */
    SHOW(pvm_setcontext(-1));
    message = case_receive(-1, 4, 5);
    SHOW(message > 0);
    SHOW(pvm_getminfo(message, &info));
    SHOW(info.ctx == first);
    SHOW(pvm_upkint(&got, 1, 1));
    SHOW(got);
    SHOW(pvm_setcontext(-77)); /* any number is accepted */
    SHOW(pvm_setcontext(0));
    SHOW(pvm_freecontext(first));
    SHOW(pvm_freecontext(first));
    SHOW(pvm_freecontext(123456));
    SHOW(pvm_freecontext(-1));
    SHOW(pvm_errno);
    SHOW(pvm_freecontext(0));
    SHOW(pvm_freecontext(second));
    pvm_exit();
    return 0;
}
