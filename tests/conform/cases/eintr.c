/* Signals do not end a wait. */
#include "case.h"
#include <signal.h>

static volatile int ticks;

static void tick(int number)
{
    ticks++;
}

int main(int argc, char **argv)
{
    struct itimerval every = {{0, 20000}, {0, 20000}};
    struct sigaction action = {.sa_handler = tick}; /* no SA_RESTART */
    int tid, value = 0;
    case_begin();
    if (argc > 1) {
        int parent = pvm_parent();
        usleep(300000);
        case_signal(parent, 1);
        pvm_psend(parent, 2, &parent, 1, PVM_INT);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    SHOW(case_spawn("child", 1, &tid));
    SHOW(pvm_recv(tid, 1) > 0);
    SHOW(pvm_precv(tid, 2, &value, 1, PVM_INT, NULL, NULL, NULL));
    SHOW(value == pvm_mytid());
    SHOW(case_receive(-1, 9, 0.3));
    SHOW(pvm_config(NULL, NULL, NULL));
    SHOW(ticks > 10);
    pvm_exit();
    return 0;
}
