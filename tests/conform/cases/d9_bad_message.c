/* D9: a message that does not exist cannot be put into a mailbox. */
//@ ours-only D9: hangs
//@ timeout 3
//@ fresh
#include "case.h"

int main(void)
{
    case_begin();
    pvm_mytid();
    SHOW(pvm_putinfo("box", 4711, PvmMboxDefault));
    SHOW(pvm_recvinfo("box", 0, PvmMboxDefault));
    pvm_exit();
    return 0;
}
