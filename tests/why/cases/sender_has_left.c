//@ tasks: 2
//@ deadlock: 0
//@ says: pvm_recv({1}, tag 1): {1} has left the machine
/* The sender has left the machine, and computes. */
#include "../fault.h"

int main(void)
{
    begin();
    if (self == 1) {
        pvm_exit();
        compute();
    }
    await(1, 1);
    return 0;
}
