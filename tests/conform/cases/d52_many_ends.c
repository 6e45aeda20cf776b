/* D52: when very many tasks end at once, each end is reported. */
//@ ours-only D52: skip
//@ fresh
//@ timeout 60
#include "case.h"

enum { TASKS = 1100, TAG = 7 };

static int tids[TASKS];

static int is_one_of_them(int tid)
{
    int index;
    for (index = 0; index < TASKS; index++)
        if (tids[index] == tid) {
            tids[index] = 0; /* once */
            return 1;
        }
    return 0;
}

int main(void)
{
    char *arguments[] = {"50", NULL};
    int index, tid, ended = 0;
    case_begin();
    pvm_mytid();
    SHOW(pvm_spawn("/bin/sleep", arguments, PvmTaskDefault, "", TASKS, tids));
    SHOW(pvm_notify(PvmTaskExit, TAG, TASKS, tids));
    for (index = 0; index < TASKS; index++)
        pvm_sendsig(tids[index], 9);
    while (ended < TASKS && case_receive(-1, TAG, 10) > 0) {
        pvm_upkint(&tid, 1, 1);
        ended += is_one_of_them(tid);
    }
    SHOW(ended);
    pvm_exit();
    return 0;
}
