/* D21: a mailbox entry whose owner has ended can be replaced and deleted. */
//@ fresh
//@ differs D21: put("lasting", PvmMboxDefault): -8 => put("lasting", PvmMboxDefault): 0
//@ differs D21: pvm_delinfo("other", 0, PvmMboxDefault): -8 => pvm_delinfo("other", 0, PvmMboxDefault): 0
//@ differs D21: pvm_recvinfo("third", 0, PvmMboxReadAndDelete) > 0: 0 => pvm_recvinfo("third", 0, PvmMboxReadAndDelete) > 0: 1
#include "case.h"

static int put(char *name, int flags)
{
    pvm_initsend(PvmDataDefault);
    return pvm_putinfo(name, pvm_getsbuf(), flags);
}

int main(int argc, char **argv)
{
    case_begin();
    pvm_mytid();
    pvm_setopt(PvmAutoErr, 0);
    SHOW(put("lasting", PvmMboxPersistent));
    SHOW(put("other", PvmMboxPersistent));
    SHOW(put("third", PvmMboxPersistent));
    SHOW(pvm_exit());
    pvm_mytid();
    SHOW(put("lasting", PvmMboxDefault));
    SHOW(pvm_delinfo("other", 0, PvmMboxDefault));
    SHOW(pvm_recvinfo("third", 0, PvmMboxReadAndDelete) > 0);
    pvm_exit();
    return 0;
}
