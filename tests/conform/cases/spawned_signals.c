/* A spawned task ignores SIGPIPE and SIGHUP: it goes on when it has written to a closed pipe. A task that was not
 * spawned, and begins with the default actions, keeps them. */
#include "case.h"
#include <signal.h>

#define TAG 5

static int ignores(int signal)
{
    struct sigaction action;
    sigaction(signal, NULL, &action);
    return action.sa_handler == SIG_IGN;
}

static void child(void)
{
    int answers[5], pipe_ends[2];
    answers[0] = ignores(SIGPIPE);
    answers[1] = ignores(SIGHUP);
    answers[2] = ignores(SIGTERM) || ignores(SIGUSR1);
    answers[3] = pipe(pipe_ends) || close(pipe_ends[0]) || write(pipe_ends[1], "x", 1) != -1;
    answers[4] = errno == EPIPE;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(answers, 5, 1);
    pvm_send(pvm_parent(), TAG);
    pvm_exit();
    exit(0);
}

int main(int count, char **arguments)
{
    char *child_arguments[] = {"child", NULL};
    struct timeval patience = {5, 0};
    int tid, i, answers[5];
    if (count > 1)
        child();
    case_begin();
    /* Whatever runs this case may ignore the signals. */
    if (!getenv("CASE_DEFAULTS")) {
        setenv("CASE_DEFAULTS", "1", 1);
        signal(SIGPIPE, SIG_DFL);
        signal(SIGHUP, SIG_DFL);
        execv(case_path(), arguments);
    }
    pvm_mytid();
    SHOW(ignores(SIGPIPE));
    SHOW(ignores(SIGHUP));
    SHOW(pvm_spawn(case_path(), child_arguments, 0, "", 1, &tid));
    SHOW(pvm_trecv(tid, TAG, &patience) > 0);
    SHOW(pvm_upkint(answers, 5, 1));
    for (i = 0; i < 5; i++)
        SHOW(answers[i]);
    pvm_exit();
    return 0;
}
