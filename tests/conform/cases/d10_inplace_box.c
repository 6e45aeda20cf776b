/* D10: an in-place message in a mailbox or in another message can be read. */
//@ differs D10: bytes: 0 => bytes: 12
//@ differs D10: pvm_upkint(in, 3, 1): -12 => pvm_upkint(in, 3, 1): 0
//@ differs D10: 0 0 0 => 1 2 3
//@ differs D10: pvm_packf("%+ %s", PvmDataInPlace, "text"): 0 => pvm_packf("%+ %s", PvmDataInPlace, "text"): -24
#include "case.h"

int main(void)
{
    int values[3] = {1, 2, 3}, in[3] = {0}, bytes = -1;
    case_begin();
    pvm_mytid();
    pvm_setopt(PvmAutoErr, 0);
    pvm_initsend(PvmDataInPlace);
    pvm_pkint(values, 3, 1);
    SHOW(pvm_putinfo("in place", pvm_getsbuf(), PvmMboxDefault));
    SHOW(pvm_recvinfo("in place", 0, PvmMboxDefault) > 0);
    pvm_bufinfo(pvm_getrbuf(), &bytes, NULL, NULL);
    SHOW(bytes);
    SHOW(pvm_upkint(in, 3, 1));
    printf("%d %d %d\n", in[0], in[1], in[2]);
    SHOW(pvm_packf("%+ %s", PvmDataInPlace, "text"));
    pvm_exit();
    return 0;
}
