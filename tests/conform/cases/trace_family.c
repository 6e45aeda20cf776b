/* Traces of spawned tasks, with the events of the daemon. The flag PvmTaskTrace has no effect; the children of
 * the spawned tasks are traced too. */
//@ fresh
//@ unordered
#include "trace.h"

static int grandchild(void)
{
    pvm_mytid();
    pvm_exit();
    return 3;
}

static int child(void)
{
    int tid, *list;
    pvm_mytid();
    pvm_siblings(&list);
    case_spawn("grandchild", 1, &tid);
    case_gone(tid);
    usleep(100000);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    Pvmtmask mask;
    int me, tid;
    case_begin();
    trace_show_known = 1;
    if (argc > 1 && strcmp(argv[1], "grandchild") == 0)
        return grandchild();
    if (argc > 1)
        return child();
    me = pvm_mytid();
    TEV_MASK_INIT(mask);
    TEV_MASK_SET(mask, TEV_MYTID);
    TEV_MASK_SET(mask, TEV_SPAWN);
    TEV_MASK_SET(mask, TEV_SIBLINGS);
    TEV_MASK_SET(mask, TEV_EXIT);
    SHOW(pvm_settmask(PvmTaskChild, mask));
    SHOW(pvm_setopt(PvmTraceTid, me));
    SHOW(pvm_setopt(PvmTraceCode, TRACE_TAG));
    SHOW(pvm_setopt(PvmTraceOptions, PvmTraceFull));
    SHOW(case_spawn("child", 1, &tid));
    trace_collect();
    pvm_exit();
    return 0;
}
