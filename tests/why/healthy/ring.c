//@ tasks: 3
/* A token goes round, and each task waits most of the time. */
#include "../fault.h"

int main(void)
{
    int from, to;

    begin();
    from = (self + tasks - 1) % tasks;
    to = (self + 1) % tasks;
    for (int round = 0; round < 30; round++) {
        if (self == 0)
            usleep(100000);
        if (self == 0)
            tell(to, 1);
        await(from, 1);
        if (self != 0)
            tell(to, 1);
    }
    return 0;
}
