//@ tasks: 2
//@ deadlock: 0 1
//@ says: pvm_recv({1}, tag 8): {1} waits itself
//@ says: a circle of waits: {0} -> {1} -> {0}.
/* Each receives before it sends. */
#include "../fault.h"

int main(void)
{
    begin();
    await(1 - self, 8);
    tell(1 - self, 8);
    return 0;
}
