/* PVM_MAX_TASKS limits the tasks of a host. */
//@ daemon-env PVM_MAX_TASKS=3
#include "case.h"

int main(int argc, char **argv)
{
    int tids[5], i;
    case_begin();
    if (argc > 1) {
        pvm_recv(pvm_parent(), 1);
        return 0;
    }
    pvm_mytid();
    SHOW(case_spawn("child", 5, tids));
    for (i = 0; i < 5; i++)
        printf("%d\n", tids[i] > 0 ? 1 : tids[i]);
    pvm_kill(tids[0]);
    case_gone(tids[0]);
    SHOW(case_spawn("child", 1, tids));
    pvm_exit();
    return 0;
}
