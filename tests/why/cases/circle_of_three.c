//@ tasks: 4
//@ deadlock: 0 1 2 3
//@ says: a circle of waits: {0} -> {1} -> {2} -> {0}. {3} waits for that.
/* Three wait in a ring, and one waits for one of them. */
#include "../fault.h"

int main(void)
{
    begin();
    await(self == 3 ? 1 : (self + 1) % 3, 1);
    return 0;
}
