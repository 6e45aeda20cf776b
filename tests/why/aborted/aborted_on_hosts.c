//@ tasks: 3
//@ hosts: 3
//@ says: 3 tasks can never go on
//@ says: waits for itself.
/* A task of another host waits for itself, and two wait for that one. */
#include "../fault.h"

int main(void)
{
    begin();
    await(1, 8);
    return 0;
}
