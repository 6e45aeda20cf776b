/* Notifies that a process sends to itself, about routes and its own exit: they come from the task itself, and have the
 * length 0, although there is something to unpack. */
#include "case.h"

static int child;

static int show(int message)
{
    struct pvmminfo info;
    int bytes, tag, source, value = 0, more = 0;
    pvm_bufinfo(message, &bytes, &tag, &source);
    pvm_getminfo(message, &info);
    printf("tag %d length %d %d from this task %d %d receiver %d\n", tag, bytes, info.len, source == pvm_mytid(),
           info.src == pvm_mytid(), info.dst == pvm_mytid());
    SHOW(pvm_upkint(&value, 1, 1));
    printf("it is about the child %d, about this task %d\n", value == child, value == pvm_mytid());
    if (pvm_upkint(&more, 1, 1) == 0)
        printf("more: %d\n", more < 0 ? more : 1);
    return 0;
}

static void next(int source, int tag)
{
    if (case_receive(source, tag, 5) > 0)
        show(pvm_getrbuf());
    else
        printf("tag %d: nothing\n", tag);
}

int main(int argc, char **argv)
{
    int me;
    case_begin();
    me = pvm_mytid();
    pvm_setopt(PvmAutoErr, 0);
    pvm_setopt(PvmRoute, PvmRouteDirect);
    if (argc > 1) {
        pvm_recv(pvm_parent(), 1);
        case_signal(pvm_parent(), 2);
        pvm_recv(pvm_parent(), 1);
        pvm_exit();
        return 0;
    }
    pvm_notify(PvmRouteDelete, 3, 1, &me);
    next(-1, 3);
    pvm_notify(PvmRouteAdd, 4, -1, NULL);
    case_spawn("child", 1, &child);
    case_signal(child, 1);
    case_receive(child, 2, 5);
    next(me, 4);
    pvm_notify(PvmRouteDelete, 5, 1, &child);
    case_signal(child, 1);
    next(me, 5);
    pvm_notify(PvmTaskExit, 6, 1, &me);
    pvm_notify(PvmTaskExit | PvmNotifyCancel, 6, 1, &me);
    next(-1, 6); /* this one comes from the daemon */
    pvm_addmhf(-1, 7, 0, show);
    pvm_notify(PvmTaskExit, 7, 1, &me);
    pvm_exit();
    return 0;
}
