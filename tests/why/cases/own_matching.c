//@ tasks: 2
//@ deadlock: 0 1
//@ says: a receive by the program's own pvm_recvf function: no task runs that could send something
/* The program's own matching function refuses all messages. */
#include "../fault.h"

static int refuse(int buffer, int tid, int tag)
{
    (void)buffer, (void)tid, (void)tag;
    return 0;
}

int main(void)
{
    begin();
    pvm_recvf(refuse);
    tell(1 - self, 2);
    await(1 - self, 2);
    return 0;
}
