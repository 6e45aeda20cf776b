//@ tasks: 3
//@ deadlock: 0 1 2
//@ says: pvm_freezegroup(all, 3): 2 of 3 have come; missing: {2} waits itself
/* One member does not freeze the group. */
#include "../fault.h"

int main(void)
{
    meet_and_keep_one();
    checked(pvm_freezegroup("all", 3));
    return 0;
}
