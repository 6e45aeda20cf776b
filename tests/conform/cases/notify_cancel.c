/* PvmNotifyCancel, notifies about hosts, and a notify about the caller's own exit. */
#include "case.h"

static int at_exit(int message)
{
    int tid = 0;
    pvm_upkint(&tid, 1, 1);
    printf("own exit seen by a handler: %d\n", tid == pvm_mytid());
    return 0;
}

static void next(int tag, double seconds)
{
    int tid = 0;
    if (case_receive(-1, tag, seconds) <= 0) {
        printf("tag %d: nothing\n", tag);
        return;
    }
    pvm_upkint(&tid, 1, 1);
    printf("tag %d: positive %d\n", tag, tid > 0);
}

int main(int argc, char **argv)
{
    int tids[2], me;
    case_begin();
    if (argc > 1) {
        pvm_recv(pvm_parent(), 1);
        return 0;
    }
    me = pvm_mytid();
    SHOW(case_spawn("child", 1, tids));
    SHOW(pvm_notify(PvmTaskExit, 1, 1, tids));
    SHOW(pvm_notify(PvmTaskExit, 1, 1, tids));
    SHOW(pvm_notify(PvmTaskExit | PvmNotifyCancel, 2, 1, tids)); /* another tag */
    next(2, 0.2);
    next(1, 0.2);
    SHOW(pvm_notify(PvmTaskExit | PvmNotifyCancel, 1, 1, tids));
    next(1, 5);
    next(1, 0.2);
    case_signal(tids[0], 1);
    next(1, 5);
    next(1, 0.2);
    SHOW(pvm_notify(PvmHostAdd, 3, 2, NULL));
    SHOW(pvm_notify(PvmHostAdd, 3, -1, NULL));
    SHOW(pvm_notify(PvmHostAdd, 3, 0, NULL));
    SHOW(pvm_notify(PvmHostAdd | PvmNotifyCancel, 3, 1, NULL));
    next(3, 0.2);
    tids[0] = pvm_tidtohost(me);
    SHOW(pvm_notify(PvmHostDelete, 4, 1, tids));
    SHOW(pvm_notify(PvmHostDelete | PvmNotifyCancel, 4, 1, tids));
    next(4, 5);
    SHOW(pvm_notify(PvmHostDelete, 4, 1, &me)); /* any tid of the host */
    SHOW(pvm_notify(PvmHostDelete | PvmNotifyCancel, 4, 1, &me));
    next(4, 5);
    SHOW(pvm_notify(PvmRouteAdd, 5, -1, NULL));
    SHOW(pvm_notify(PvmRouteAdd | PvmNotifyCancel, 5, -1, NULL));
    next(5, 0.2);
    SHOW(pvm_notify(PvmRouteDelete, 6, 1, &me));
    next(6, 0.2);
    SHOW(pvm_addmhf(-1, 7, 0, at_exit) >= 0);
    SHOW(pvm_notify(PvmTaskExit, 7, 1, &me));
    SHOW(pvm_exit());
    SHOW(pvm_mytid() != me);
    SHOW(pvm_nrecv(-1, -1));
    pvm_setopt(PvmAutoErr, 0);
    pvm_exit();
    return 0;
}
