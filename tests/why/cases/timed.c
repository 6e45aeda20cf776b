//@ tasks: 2
//@ deadlock: none
//@ says: pvm_recv({1}, tag 1): {1} waits itself; the call ends by itself
/* Both look for messages that do not come, again and again: no deadlock, since each goes on. */
#include "../fault.h"

int main(void)
{
    struct timeval time = {3, 0};

    begin();
    for (;;)
        checked(pvm_trecv(tid_of[1 - self], 1, &time));
}
