//@ tasks: 2
//@ deadlock: none
//@ says: pvm_recv({1}, tag 1): {1} is stopped by a signal or a debugger
/* The sender is stopped. */
#include "../fault.h"
#include <signal.h>

int main(void)
{
    begin();
    if (self == 1)
        raise(SIGSTOP);
    await(1, 1);
    return 0;
}
