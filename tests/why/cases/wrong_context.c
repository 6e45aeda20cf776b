//@ tasks: 2
//@ deadlock: 0 1
//@ says: pvm_recv({0}, tag 8): {0} waits itself; 1 unread message from {0}: tag 8 in context
/* The sender has another context than the receiver. */
#include "../fault.h"

int main(void)
{
    int own;

    begin();
    if (self == 0) {
        own = checked(pvm_setcontext(checked(pvm_newcontext())));
        tell(1, 8);
        checked(pvm_setcontext(own));
    }
    await(1 - self, 8);
    return 0;
}
