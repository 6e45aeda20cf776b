//@ tasks: 2
//@ deadlock: 0 1
//@ says: pvm_barrier(all, 3): 2 of 3 have come; the group has only 2 members
/* The count is that of another run, with a task more. */
#include "../fault.h"

int main(void)
{
    begin();
    meet();
    checked(pvm_barrier("all", 3));
    return 0;
}
