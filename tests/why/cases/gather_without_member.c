//@ tasks: 3
//@ deadlock: 0 2
//@ says: a collective operation of group all: {2} waits itself
/* The root of a gather waits for a member that waits for the root. */
#include "../fault.h"

int main(void)
{
    int mine = 1, all[3];

    begin();
    meet();
    if (self == 2)
        await(0, 5);
    checked(pvm_gather(all, &mine, 1, PVM_INT, 9, "all", pvm_getinst("all", tid_of[0])));
    if (self == 1)
        compute();
    return 0;
}
