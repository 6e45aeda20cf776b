/* Real-time signals, which have no names, are delivered too; invalid numbers have no effect. */
#include "case.h"
#include <signal.h>

enum { READY = 1, HEARD = 2 };

static volatile sig_atomic_t heard;

static void hear(int number)
{
    heard = number;
}

/* Prints each signal that arrives. */
static void child(void)
{
    sigset_t all, before;
    int number;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = hear;
    sigemptyset(&all);
    for (number = 34; number <= 64; number++) {
        sigaction(number, &action, NULL);
        sigaddset(&all, number);
    }
    sigprocmask(SIG_BLOCK, &all, &before);
    case_signal(pvm_parent(), READY);
    for (;;) {
        sigsuspend(&before);
        number = heard;
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&number, 1, 1);
        pvm_send(pvm_parent(), HEARD);
    }
}

int main(int argc, char **argv)
{
    static int numbers[] = {34, 37, 50, 64};
    int tid, number, index;
    case_begin();
    if (argc > 1)
        child();
    SHOW(case_spawn("child", 1, &tid));
    SHOW_SIGN(case_receive(tid, READY, 5.0));
    for (index = 0; index < 4; index++) {
        SHOW(pvm_sendsig(tid, numbers[index]));
        SHOW_SIGN(case_receive(tid, HEARD, 5.0));
        number = 0;
        pvm_upkint(&number, 1, 1);
        printf("heard %d\n", number);
    }
    SHOW(pvm_sendsig(tid, 65));
    SHOW(pvm_sendsig(tid, 1000));
    SHOW(pvm_sendsig(tid, -1));
    SHOW(pvm_pstat(tid));
    SHOW(case_receive(tid, HEARD, 0.3));
    SHOW(pvm_sendsig(tid, 9));
    case_gone(tid);
    SHOW(pvm_pstat(tid));
    pvm_exit();
    return 0;
}
