//@ tasks: 1
//@ deadlock: 0
//@ says: is no task, or has ended
/* The tid is that of no task: it was read as a number of another kind. */
#include "../fault.h"

int main(void)
{
    begin();
    checked(pvm_recv(0x40000 + 54321, 1));
    return 0;
}
