//@ tasks: 2
//@ deadlock: none
//@ says: pvm_recv({1}, tag 1): {1} computes
/* A task leaves its receive by a jump out of a signal handler, and computes. */
#include "../fault.h"
#include <setjmp.h>
#include <signal.h>

static jmp_buf out;

static void leave(int signal)
{
    (void)signal;
    siglongjmp(out, 1);
}

int main(void)
{
    begin();
    if (self == 1) {
        signal(SIGALRM, leave);
        if (sigsetjmp(out, 1) == 0) {
            alarm(1);
            await(0, 1);
        }
        for (volatile unsigned long i = 0;; i++)
            ;
    }
    await(1, 1);
    return 0;
}
