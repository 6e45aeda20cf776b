/* A failed call does not end a program whose standard error nobody reads any more: its daemon was killed. */
#include "check.h"
#include <signal.h>

static volatile sig_atomic_t handled;

static void count(int number)
{
    (void)number;
    handled++;
}

int main(void)
{
    int errors = dup(2), ends[2];
    sigset_t blocked, pending;

    CHECK(pvm_mytid() > 0 && errors >= 0 && pipe(ends) == 0);
    CHECK(dup2(ends[1], 2) == 2 && close(ends[0]) == 0);
    if (pvm_pstat(-1) != PvmBadParam)
        _exit(2);
    signal(SIGPIPE, count);
    if (pvm_pstat(-1) != PvmBadParam)
        _exit(3);
    /* A signal of the program's own stays pending. */
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGPIPE);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    raise(SIGPIPE);
    if (pvm_pstat(-1) != PvmBadParam)
        _exit(4);
    dup2(errors, 2);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) && handled == 0);
    sigprocmask(SIG_UNBLOCK, &blocked, NULL);
    CHECK(handled == 1);
    CHECK(pvm_exit() == 0);
    return 0;
}
