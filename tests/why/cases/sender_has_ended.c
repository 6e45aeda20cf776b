//@ tasks: 2
//@ deadlock: 0
//@ says: tag 1): t
//@ says: is no task, or has ended
//@ says: {0} waits for what can never come.
/* The sender has ended, and nobody has asked to be told. */
#include "../fault.h"

int main(void)
{
    begin();
    if (self == 1)
        return 0;
    await(1, 1);
    return 0;
}
