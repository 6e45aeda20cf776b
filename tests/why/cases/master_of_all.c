//@ tasks: 4
//@ deadlock: 0 1 2 3
//@ says: pvm_recv(any task, tag 8): no task runs that could send something; 1 unread message from
//@ says: 1 unread message from {3}: tag 7
//@ says: pvm_recv({0}, tag 9): {0} waits itself
/* The master waits for answers of all workers with another tag than they use. */
#include "../fault.h"

int main(void)
{
    begin();
    if (self > 0)
        tell(0, 7);
    await(self == 0 ? -1 : 0, self == 0 ? 8 : 9);
    return 0;
}
