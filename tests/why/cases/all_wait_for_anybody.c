//@ tasks: 3
//@ deadlock: 0 1 2
//@ says: {0}, {1} and {2} wait, and only they could free each other.
/* Each waits until somebody else begins. */
#include "../fault.h"

int main(void)
{
    begin();
    await(-1, -1);
    return 0;
}
