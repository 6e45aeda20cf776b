//@ tasks: 3
//@ says: 2 tasks can never go on
//@ says: a circle of waits:
//@ says: ending the run (--deadlock abort)
/* Two of three wait for each other, while the last one computes for ever: the run can only be ended. */
#include "../fault.h"

int main(void)
{
    begin();
    if (self == 2)
        compute();
    await(1 - self, 8);
    return 0;
}
