//@ tasks: 3
//@ deadlock: none
//@ says: pvm_barrier(all, 3): 2 of 3 have come; missing: {2} computes
//@ says: 1 task computes.
/* One member is late. That is no deadlock. */
#include "../fault.h"

int main(void)
{
    begin();
    meet();
    if (self == 2)
        compute();
    checked(pvm_barrier("all", 3));
    return 0;
}
