/* A message can be read again after setrbuf. */
#include "case.h"

int main(void)
{
    int value = 5, in = 0, message;
    case_begin();
    pvm_mytid();
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    pvm_send(pvm_mytid(), 1);
    message = case_own(1);
    SHOW(pvm_upkint(&in, 1, 1));
    SHOW(in);
    SHOW(pvm_setrbuf(0) == message);
    SHOW(pvm_setrbuf(message));
    SHOW(pvm_upkint(&in, 1, 1));
    in = 0;
    /* A buffer that was packed here can be read here. */
    message = pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    SHOW(pvm_setrbuf(message) > 0);
    SHOW(pvm_upkint(&in, 1, 1));
    SHOW(in);
    pvm_exit();
    return 0;
}
