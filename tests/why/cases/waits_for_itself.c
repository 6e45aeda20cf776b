//@ tasks: 1
//@ deadlock: 0
//@ says: {0} waits for itself.
/* The task receives from its own tid. */
#include "../fault.h"

int main(void)
{
    begin();
    await(0, 1);
    return 0;
}
