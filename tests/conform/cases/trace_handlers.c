/* Traces of message handlers. PVM 3.4.6 runs them in other calls than hpvm, and also traces what
 * the library itself does around them. */
//@ fresh
//@ unordered
#include "trace.h"

static int handler(int mid)
{
    int value;
    pvm_upkint(&value, 1, 1);
    return 0;
}

static void handlers(void)
{
    int id, x = 1;
    id = pvm_addmhf(-1, 55, 0, handler);
    pvm_addmhf(-1, 55, 0, handler);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&x, 1, 1);
    pvm_send(pvm_mytid(), 55);
    usleep(50000);
    pvm_nrecv(-1, 1);
    pvm_delmhf(id);
    pvm_delmhf(1000);
}

int main(int argc, char **argv)
{
    static const int inside[] = {TEV_SETSBUF, TEV_SETRBUF, TEV_SETCONTEXT, TEV_FREEBUF, -1};
    case_begin();
    if (argc > 1) {
        trace_to(argv[2], PvmTraceFull, inside);
        pvm_setopt(PvmAutoErr, 0);
        handlers();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    trace_run("handlers");
    trace_collect_tasks();
    pvm_exit();
    return 0;
}
