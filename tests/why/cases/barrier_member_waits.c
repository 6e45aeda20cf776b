//@ tasks: 3
//@ deadlock: 0 1 2
//@ says: pvm_barrier(all, 3): 2 of 3 have come; missing: {2} waits itself
/* One member waits for a message of those that are at the barrier. */
#include "../fault.h"

int main(void)
{
    meet_and_keep_one();
    checked(pvm_barrier("all", 3));
    return 0;
}
