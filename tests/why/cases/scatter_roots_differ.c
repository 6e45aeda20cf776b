//@ tasks: 2
//@ deadlock: 0 1
//@ says: a collective operation of group roots
//@ says: a circle of waits: {0} -> {1} -> {0}.
/* Each takes the other for the root of a scatter, so nobody sends. */
#include "../fault.h"

int main(void)
{
    int all[2] = {1, 2}, mine, instance;

    begin();
    instance = checked(pvm_joingroup("roots"));
    checked(pvm_barrier("roots", 2));
    checked(pvm_scatter(&mine, all, 1, PVM_INT, 7, "roots", 1 - instance));
    return 0;
}
