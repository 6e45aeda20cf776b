/* PvmAutoErr 2 ends the program with the error code as its exit status; 3 aborts the program. */
#include "case.h"
#include <sys/resource.h>
#include <sys/wait.h>

static void attempt(int policy)
{
    int status = 0, id = fork();
    if (id == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        pvm_mytid();
        pvm_setopt(PvmAutoErr, policy);
        pvm_pstat(pvm_mytid() | 0x3fff0); /* failures that are not printed do not end the program */
        printf("still here\n");
        pvm_send(0, 1);
        printf("not reached\n");
        _exit(0);
    }
    waitpid(id, &status, 0);
    printf("policy %d: exit %d signal %d\n", policy, WIFEXITED(status) ? WEXITSTATUS(status) : -1,
           WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

int main(void)
{
    case_begin();
    attempt(1);
    attempt(2);
    attempt(3);
    return 0;
}
