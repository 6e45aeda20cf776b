//@ tasks: 2
//@ hosts: 2
//@ deadlock: 0 1
//@ says: pvm_recv({1}, tag 8): {1} waits itself; 1 unread message from {1}: tag 7
/* Two that have exchanged messages on a direct link. */
#include "../fault.h"

int main(void)
{
    begin();
    checked(pvm_setopt(PvmRoute, PvmRouteDirect));
    for (int i = 0; i < 100; i++) {
        tell(1 - self, 1);
        await(1 - self, 1);
    }
    tell(1 - self, 7);
    await(1 - self, 8);
    return 0;
}
