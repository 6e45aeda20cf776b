/* pvm_notify: all kinds, errors, and deaths before and after the request. */
#include "case.h"

static int me;

static void next(int tag, int child, double seconds)
{
    struct pvmminfo info;
    int message = case_receive(-1, tag, seconds), tid = 0;
    if (message <= 0) {
        printf("tag %d: nothing\n", tag);
        return;
    }
    pvm_getminfo(message, &info);
    pvm_upkint(&tid, 1, 1);
    printf("tag %d: child %d len %d src %x wid %d enc %x ctx %d dst %d\n", tag, tid == child, info.len, info.src,
           info.wid, info.enc, info.ctx, info.dst == me);
}

int main(int argc, char **argv)
{
    int tids[4], list[4];
    case_begin();
    if (argc > 1) {
        pvm_recv(pvm_parent(), 1);
        return 0; /* without pvm_exit */
    }
    me = pvm_mytid();
    SHOW(pvm_notify(PvmTaskExit, 5, 0, tids));
    SHOW(pvm_notify(PvmTaskExit, 5, -1, tids));
    SHOW(pvm_notify(PvmTaskExit, -5, 1, &me));
    list[0] = pvm_tidtohost(me);
    SHOW(pvm_notify(PvmTaskExit, 5, 1, list));
    list[0] = 0;
    SHOW(pvm_notify(PvmTaskExit, 5, 1, list));
    SHOW(pvm_notify(0, 5, 1, &me));
    SHOW(pvm_notify(6, 5, 1, &me));
    SHOW(pvm_notify(99, 5, 1, &me));
    SHOW(pvm_notify(PvmHostDelete, 5, 0, &me));
    SHOW(case_spawn("child", 3, tids));
    SHOW(pvm_notify(PvmTaskExit, 10, 1, tids));
    SHOW(pvm_notify(PvmTaskExit, 10, 1, tids)); /* twice */
    pvm_setcontext(8);
    SHOW(pvm_notify(PvmTaskExit, 11, 3, tids));
    pvm_setcontext(0);
    case_signal(tids[0], 1);
    next(10, tids[0], 5);
    next(10, tids[0], 5);
    next(10, tids[0], 0.2);
    pvm_setcontext(8);
    next(11, tids[0], 5);
    next(11, tids[0], 0.2);
    pvm_setcontext(0);
    SHOW(pvm_kill(tids[1]));
    pvm_setcontext(8);
    next(11, tids[1], 5);
    pvm_setcontext(0);
    SHOW(pvm_notify(PvmTaskExit, 12, 1, tids)); /* this task has ended already */
    next(12, tids[0], 5);
    list[0] = me | 0x3fff0;
    SHOW(pvm_notify(PvmTaskExit, 13, 1, list)); /* this task never existed */
    next(13, list[0], 5);
    list[0] = 0x3ffc0001;
    SHOW(pvm_notify(PvmTaskExit, 14, 1, list)); /* a tid of a host that does not exist */
    next(14, list[0], 5);
    SHOW(pvm_notify(PvmHostDelete, 15, 1, list));
    next(15, list[0], 5);
    list[0] = 0x3ffc0000;
    SHOW(pvm_notify(PvmHostDelete, 16, 1, list));
    next(16, list[0], 5);
    /* The same tid twice in one list. */
    list[0] = list[1] = tids[2];
    SHOW(pvm_notify(PvmTaskExit, 17, 2, list));
    SHOW(pvm_sendsig(tids[2], 9));
    next(17, tids[2], 5);
    next(17, tids[2], 5);
    next(17, tids[2], 0.2);
    pvm_exit();
    return 0;
}
