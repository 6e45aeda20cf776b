//@ tasks: 2
//@ deadlock: 0 1
//@ says: pvm_recv({0}, tag 8): {0} waits itself; 3 unread messages from {0}: tag 7
/* The sender uses another tag than the receiver. */
#include "../fault.h"

int main(void)
{
    begin();
    for (int i = 0; i < 3 && self == 0; i++)
        tell(1, 7);
    await(1 - self, self == 0 ? 9 : 8);
    return 0;
}
