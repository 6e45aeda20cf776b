//@ tasks: 2
//@ deadlock: 0 1
//@ says: pvm_precv({1}, tag 4, 80 bytes): {1} waits itself; 1 unread message from {1}: tag 3
/* psend and precv with different tags. */
#include "../fault.h"

int main(void)
{
    double data[10] = {0};

    begin();
    checked(pvm_psend(tid_of[1 - self], 3, data, 10, PVM_DOUBLE));
    checked(pvm_precv(tid_of[1 - self], 4, data, 10, PVM_DOUBLE, NULL, NULL, NULL));
    return 0;
}
