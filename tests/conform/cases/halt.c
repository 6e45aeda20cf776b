/* pvm_halt ends every task by SIGTERM, including the caller. */
//@ fresh
#include "case.h"
#include <signal.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
    int child, status = 0, id;
    case_begin();
    if (argc > 1) {
        case_signal(pvm_parent(), 1);
        pause();
        return 0;
    }
    id = fork();
    if (id == 0) {
        pvm_mytid();
        case_spawn("child", 1, &child);
        case_receive(child, 1, 5);
        pvm_halt();
        sleep(3);
        printf("lives on\n");
        _exit(0);
    }
    waitpid(id, &status, 0);
    printf("exit %d signal %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    pvm_setopt(PvmAutoErr, 0);
    SHOW(access(pvmgettmp(), R_OK));
    return 0;
}
