/* Traces that are buffered, only counted, or only timed. */
//@ fresh
#include "trace.h"

static void calls(void)
{
    int turn;
    pvm_parent();
    for (turn = 0; turn < 5; turn++)
        pvm_getopt(PvmRoute);
    pvm_pstat(pvm_mytid());
}

int main(int argc, char **argv)
{
    static const struct {
        char *name;
        int options, buffer;
    } ways[] = {{"buffer", PvmTraceFull, 300},
                {"large buffer", PvmTraceFull, 100000},
                {"count", PvmTraceCount, 0},
                {"count with a buffer", PvmTraceCount, 1000}};
    unsigned way;
    case_begin();
    for (way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        if (argc > 1 && strcmp(argv[1], ways[way].name) == 0) {
            pvm_mytid();
            pvm_setopt(PvmSelfTraceBuffer, ways[way].buffer);
            trace_to(argv[2], ways[way].options, NULL);
            calls();
            pvm_exit();
            return 0;
        }
    }
    pvm_mytid();
    for (way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        printf("---- %s\n", ways[way].name);
        trace_run(ways[way].name);
        trace_collect_tasks();
    }
    pvm_exit();
    return 0;
}
