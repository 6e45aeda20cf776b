//@ tasks: 1
//@ deadlock: none
//@ says: pvm_recv(any task, any tag): no task runs that could send something; only a new task could send something
/* A server without clients. */
#include "../fault.h"

int main(void)
{
    begin();
    await(-1, -1);
    return 0;
}
