/* pvm_notify across hosts: exits of every kind, hosts that join and leave, cancelled requests. */
//@ fresh
//@ timeout 40
#include "hosts.h"

static void heard(int tag, double seconds)
{
    struct pvmminfo info;
    int tid = 0, count = 0, message = case_receive(-1, tag, seconds);
    if (message <= 0) {
        printf("tag %d: nothing\n", tag);
        return;
    }
    pvm_getminfo(message, &info);
    pvm_upkint(&tid, 1, 1);
    if (tag >= 30) {
        count = tid;
        pvm_upkint(&tid, 1, 1);
    }
    printf("tag %d: t%x, %d; length %d source %x context %d\n", tag, tid, count, info.len, info.src, info.ctx);
}

/* Runs on another host: reports its notifications about the task that it watches. */
static void watcher(void)
{
    int tid, seen, parent = pvm_parent();
    pvm_recv(parent, 1);
    pvm_upkint(&tid, 1, 1);
    pvm_notify(PvmTaskExit, 5, 1, &tid);
    case_signal(parent, 2);
    case_receive(-1, 5, PATIENCE);
    pvm_upkint(&seen, 1, 1);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&seen, 1, 1);
    pvm_send(parent, 3);
}

int main(int argc, char **argv)
{
    char *delta[] = {"delta"}, *names[] = {"charlie"};
    int tids[4], far, seen, list[2], status;
    case_begin();
    if (argc > 1 && strcmp(argv[1], "watcher") == 0) {
        watcher();
        pvm_exit();
        return 0;
    }
    if (argc > 1) {
        pvm_recv(pvm_parent(), 1);
        if (argv[1][0] == 'c')
            abort();
        if (argv[1][0] == 'p')
            pvm_exit();
        return 0;
    }
    pvm_mytid();
    tids[0] = spawn_on("bravo", "returns");
    tids[1] = spawn_on("charlie", "crashes");
    tids[2] = spawn_on("delta", "pvm_exit");
    tids[3] = spawn_on("bravo", "killed");
    SHOW(pvm_notify(PvmTaskExit, 10, 4, tids));
    SHOW(pvm_notify(PvmTaskExit, 11, 1, tids));
    SHOW(pvm_notify(PvmTaskExit | PvmNotifyCancel, 11, 1, tids));
    heard(11, 2);
    case_signal(tids[0], 1);
    heard(10, PATIENCE);
    case_signal(tids[1], 1);
    heard(10, PATIENCE);
    case_signal(tids[2], 1);
    heard(10, PATIENCE);
    pvm_kill(tids[3]);
    heard(10, PATIENCE);
    heard(10, 0.2);
    SHOW(pvm_notify(PvmTaskExit, 12, 1, tids));
    heard(12, PATIENCE);
    SHOW(pvm_notify(PvmTaskExit, 12, 1, tids + 1));
    heard(12, PATIENCE);
    /* A task on one host watches a task on another host. */
    far = spawn_on("charlie", "watcher");
    tids[0] = spawn_on("delta", "returns");
    pvm_initsend(PvmDataDefault);
    pvm_pkint(tids, 1, 1);
    pvm_send(far, 1);
    case_receive(far, 2, PATIENCE);
    case_signal(tids[0], 1);
    SHOW(case_receive(far, 3, PATIENCE) > 0);
    pvm_upkint(&seen, 1, 1);
    SHOW(seen == tids[0]);
    case_gone(far);
    /* Notifications about hosts. */
    tids[0] = spawn_on("delta", "stays");
    list[0] = host_tid("delta");
    list[1] = tids[0];
    SHOW(pvm_notify(PvmTaskExit, 20, 1, tids));
    SHOW(pvm_notify(PvmHostDelete, 21, 2, list));
    SHOW(pvm_notify(PvmHostDelete, 22, 1, list));
    SHOW(pvm_notify(PvmHostDelete | PvmNotifyCancel, 22, 1, list));
    heard(22, 1);
    SHOW(pvm_notify(PvmHostAdd, 30, -1, NULL));
    SHOW(pvm_notify(PvmHostAdd, 31, 1, NULL));
    SHOW(pvm_delhosts(delta, 1, &status));
    SHOW(status);
    heard(21, PATIENCE);
    heard(21, PATIENCE);
    heard(20, PATIENCE);
    heard(22, 0.2);
    SHOW(pvm_addhosts(delta, 1, &status));
    printf("added %x\n", status);
    heard(30, PATIENCE);
    heard(31, PATIENCE);
    SHOW(pvm_delhosts(names, 1, &status));
    usleep(500000);
    SHOW(pvm_addhosts(names, 1, &status));
    printf("added %x\n", status);
    heard(30, PATIENCE);
    heard(31, 0.2);
    pvm_exit();
    return 0;
}
