/* pvm_delhosts: its results, the end of the tasks on the deleted hosts, and the notifications about both. */
//@ fresh
//@ differs D25: bravo.hpvm.test: -6 => bravo.hpvm.test: -28
#include "hosts.h"

static void heard(int tag)
{
    int tid = 0;
    if (case_receive(-1, tag, PATIENCE) <= 0) {
        printf("tag %d: nothing\n", tag);
        return;
    }
    pvm_upkint(&tid, 1, 1);
    printf("tag %d: t%x\n", tag, tid);
}

int main(int argc, char **argv)
{
    char *names[] = {"bravo", "bravo", "nowhere", "bravo.hpvm.test"}, *delta[] = {"delta"};
    int status[4] = {-99, -99, -99, -99}, tids[4], list[3], i, count;
    case_begin();
    if (argc > 1) {
        pvm_recv(-1, -1);
        return 0;
    }
    pvm_mytid();
    SHOW(spawn_on_all("idle", tids));
    SHOW(pvm_notify(PvmTaskExit, 10, 4, tids));
    list[0] = host_tid("bravo");
    list[1] = host_tid("delta");
    list[2] = tids[1];
    SHOW(pvm_notify(PvmHostDelete, 11, 3, list));
    SHOW(pvm_delhosts(names, 4, status));
    for (i = 0; i < 4; i++)
        printf("%s: %d\n", names[i], status[i]);
    heard(11);
    heard(11);
    heard(10);
    SHOW(pvm_config(&count, NULL, NULL));
    SHOW(count);
    SHOW(pvm_mstat("bravo"));
    SHOW(pvm_pstat(tids[1]));
    SHOW(pvm_pstat(tids[2]));
    SHOW(pvm_kill(tids[1]));
    SHOW(spawn_on("bravo", "idle"));
    SHOW(pvm_delhosts(delta, 1, status));
    heard(11);
    heard(10);
    SHOW(case_receive(-1, 10, 0.3));
    SHOW(case_receive(-1, 11, 0.3));
    SHOW(pvm_notify(PvmHostDelete, 12, 1, list));
    heard(12);
    SHOW(pvm_notify(PvmTaskExit, 13, 1, tids + 1));
    heard(13);
    pvm_kill(tids[0]);
    heard(10);
    pvm_kill(tids[2]);
    heard(10);
    pvm_exit();
    return 0;
}
