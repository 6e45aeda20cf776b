//@ tasks: 2
//@ deadlock: 0 1
//@ says: pvm_recvinfo(results): no task runs that could send something
/* Both wait for an entry that none of them makes. */
#include "../fault.h"

int main(void)
{
    begin();
    checked(pvm_recvinfo("results", 0, PvmMboxWaitForInfo));
    return 0;
}
