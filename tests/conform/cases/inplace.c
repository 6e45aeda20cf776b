/* In-place packing: the memory is read when the message is sent. */
#include "case.h"

int main(void)
{
    int values[3] = {1, 2, 3}, in[3] = {0}, bytes = -1, message;
    double number = 1.5, got = 0;
    case_begin();
    pvm_mytid();
    message = pvm_initsend(PvmDataInPlace);
    SHOW(pvm_pkint(values, 3, 1));
    SHOW(pvm_pkdouble(&number, 1, 1));
    pvm_bufinfo(message, &bytes, NULL, NULL);
    SHOW(bytes);
    values[1] = 77;
    SHOW(pvm_send(pvm_mytid(), 1));
    values[1] = 88;
    number = 2.5;
    SHOW(pvm_send(pvm_mytid(), 2));
    values[1] = 99;
    case_own(1);
    pvm_bufinfo(pvm_getrbuf(), &bytes, NULL, NULL);
    SHOW(bytes);
    pvm_upkint(in, 3, 1);
    pvm_upkdouble(&got, 1, 1);
    printf("first: %d %d %d %g\n", in[0], in[1], in[2], got);
    case_own(2);
    pvm_upkint(in, 3, 1);
    pvm_upkdouble(&got, 1, 1);
    printf("second: %d %d %d %g\n", in[0], in[1], in[2], got);
    SHOW(pvm_pkint(values, 3, 2));
    SHOW(pvm_pkint(values, 1, 0));
    SHOW(pvm_pkstr("text"));
    SHOW(pvm_pkint(values, 1, 1)); /* continues after errors */
    SHOW(pvm_send(pvm_mytid(), 3));
    case_own(3);
    pvm_bufinfo(pvm_getrbuf(), &bytes, NULL, NULL);
    SHOW(bytes);
    pvm_exit();
    return 0;
}
