/* A registered tracer gets the traces of all tasks that enroll later, until the tracer leaves. */
//@ fresh
//@ unordered
#include "trace.h"

/* Symbols of the library that no header declares. */
extern struct Pvmtracer pvmtrc, pvmctrc;

static void show(const char *who)
{
    printf("%s: trace %s %d %d, output %s %d %d, buffer %d, options %d, mask %s; children: trace %s, output %s\n", who,
           pvmtrc.trctid > 0 ? "somebody" : "nobody", pvmtrc.trcctx, pvmtrc.trctag,
           pvmtrc.outtid > 0 ? "somebody" : "nobody", pvmtrc.outctx, pvmtrc.outtag, pvmtrc.trcbuf, pvmtrc.trcopt,
           pvmtrc.tmask, pvmctrc.trctid > 0 ? "somebody" : "nobody", pvmctrc.outtid > 0 ? "somebody" : "nobody");
    fflush(stdout);
}

static int guest(void)
{
    pvm_mytid();
    show("guest");
    pvm_parent();
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    Pvmtmask mask;
    int child;
    case_begin();
    trace_show_known = 1;
    if (argc > 1)
        return guest();
    pvm_mytid();
    TEV_MASK_INIT(mask);
    TEV_MASK_SET(mask, TEV_MYTID);
    TEV_MASK_SET(mask, TEV_PARENT);
    TEV_MASK_SET(mask, TEV_EXIT);
    printf("---- before\n");
    trace_run("guest");
    SHOW(pvm_reg_tracer(0, TRACE_TAG, 5, 6, mask, 0, PvmTraceFull));
    show("tracer");
    printf("---- while registered\n");
    trace_run("guest");
    trace_collect();
    SHOW(case_spawn("spawned", 1, &child));
    trace_collect();
    printf("---- a buffer\n");
    SHOW(pvm_reg_tracer(0, 0, 0, 0, mask, 0, 0));
    SHOW(pvm_reg_tracer(0, TRACE_TAG, 5, 6, mask, 500, PvmTraceCount));
    trace_run("guest");
    trace_collect();
    printf("---- after\n");
    SHOW(pvm_reg_tracer(0, 0, 0, 0, mask, 0, 0));
    trace_run("guest");
    trace_collect();
    pvm_exit();
    return 0;
}
