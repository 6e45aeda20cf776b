/* A signal handler calls pvm_exit: during a wait the call succeeds; during other calls it is refused and does
 * no harm. */
#include "check.h"
#include <signal.h>

static volatile sig_atomic_t left = -1000, busy;

static void leave(int number)
{
    (void)number;
    left = pvm_exit();
    if (!busy)
        _exit(left == 0 ? 0 : 1);
}

static void wait_for_the_signal(void)
{
    CHECK(pvm_mytid() > 0);
    signal(SIGALRM, leave);
    alarm(1);
    pvm_recv(-1, -1);
    exit(1);
}

int main(void)
{
    struct itimerval often = { { 0, 300 }, { 0, 300 } }, never = { { 0, 0 }, { 0, 0 } };
    pid_t child = fork();
    int i, value;

    if (child == 0)
        wait_for_the_signal();
    CHECK(status_of(child) == 0);

    busy = 1;
    pvm_setopt(PvmAutoErr, 0);
    signal(SIGALRM, leave);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (i = 0; i < 300; i++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&i, 1, 1);
        if (pvm_send(pvm_mytid(), 1) == 0 && pvm_nrecv(-1, 1) > 0)
            pvm_upkint(&value, 1, 1);
    }
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(left != -1000);
    CHECK(pvm_mytid() > 0);
    CHECK(pvm_exit() == 0);
    return 0;
}
