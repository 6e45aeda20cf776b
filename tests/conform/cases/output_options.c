/* PvmOutputTid and related options. */
#include "case.h"

int main(void)
{
    int me;
    case_begin();
    me = pvm_mytid();
    SHOW(pvm_setopt(PvmOutputTid, me + 1));
    SHOW(pvm_setopt(PvmOutputTid, 1));
    SHOW(pvm_setopt(PvmOutputTid, -1));
    SHOW(pvm_setopt(PvmOutputCode, 5)); /* no tid yet */
    SHOW(pvm_setopt(PvmOutputContext, 5));
    SHOW(pvm_setopt(PvmOutputTid, me));
    SHOW(pvm_getopt(PvmOutputTid) == me);
    SHOW(pvm_getopt(PvmOutputCode));
    SHOW(pvm_getopt(PvmOutputContext));
    SHOW(pvm_setopt(PvmOutputCode, 5));
    SHOW(pvm_setopt(PvmOutputCode, -5));
    SHOW(pvm_getopt(PvmOutputCode));
    SHOW(pvm_setopt(PvmOutputContext, 9));
    SHOW(pvm_getopt(PvmOutputContext));
    SHOW(pvm_setopt(PvmOutputTid, 0) == me);
    SHOW(pvm_getopt(PvmOutputTid));
    SHOW(pvm_getopt(PvmOutputCode));
    SHOW(pvm_getopt(PvmOutputContext));
    SHOW(pvm_setopt(PvmTraceTid, me + 1));
    SHOW(pvm_setopt(PvmTraceTid, me));
    SHOW(pvm_setopt(PvmTraceCode, 666));
    SHOW(pvm_setopt(PvmTraceCode, -1));
    SHOW(pvm_setopt(PvmTraceContext, 3));
    SHOW(pvm_getopt(PvmTraceTid) == me);
    SHOW(pvm_getopt(PvmTraceCode));
    SHOW(pvm_getopt(PvmTraceContext));
    SHOW(pvm_setopt(PvmTraceTid, 0) == me);
    pvm_setopt(PvmAutoErr, 0); /* PVM prints "Error 0" for some of these calls */
    SHOW(pvm_setopt(PvmSelfOutputCode, 5));
    SHOW(pvm_setopt(PvmSelfOutputContext, 5));
    SHOW(pvm_setopt(PvmSelfTraceCode, 5));
    SHOW(pvm_setopt(PvmSelfTraceContext, 5));
    SHOW(pvm_setopt(PvmSelfOutputTid, 0));
    SHOW(pvm_setopt(PvmSelfOutputTid, -2));
    SHOW(pvm_setopt(PvmSelfTraceTid, 0));
    SHOW(pvm_setopt(PvmSelfTraceBuffer, 20));
    SHOW(pvm_getopt(PvmSelfTraceBuffer));
    SHOW(pvm_setopt(PvmSelfTraceOptions, 0));
    SHOW(pvm_setopt(PvmSelfTraceOptions, 2));
    SHOW(pvm_getopt(PvmSelfTraceOptions));
    pvm_exit();
    return 0;
}
