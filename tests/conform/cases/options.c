/* Every option: its default, a valid value, an invalid one. */
#include "case.h"

int main(void)
{
    int option;
    case_begin();
    pvm_mytid();
    pvm_setopt(PvmAutoErr, 0);
    for (option = -1; option <= 27; option++)
        printf("getopt %d: %d\n", option, pvm_getopt(option));
    SHOW(pvm_setopt(PvmAutoErr, 0));
    SHOW(pvm_setopt(PvmRoute, PvmRouteDirect));
    SHOW(pvm_getopt(PvmRoute));
    SHOW(pvm_setopt(PvmRoute, PvmDontRoute));
    SHOW(pvm_setopt(PvmRoute, 0));
    SHOW(pvm_setopt(PvmRoute, 4));
    SHOW(pvm_setopt(PvmRoute, -1));
    SHOW(pvm_setopt(PvmRoute, PvmAllowDirect));
    SHOW(pvm_setopt(PvmAutoErr, -1));
    SHOW(pvm_setopt(PvmAutoErr, 4));
    SHOW(pvm_setopt(PvmAutoErr, 0));
    SHOW(pvm_setopt(PvmDebugMask, 0));
    SHOW(pvm_setopt(PvmFragSize, 51));
    SHOW(pvm_setopt(PvmFragSize, 52));
    SHOW(pvm_setopt(PvmFragSize, 1048576));
    SHOW(pvm_setopt(PvmFragSize, 1048577));
    SHOW(pvm_getopt(PvmFragSize));
    SHOW(pvm_setopt(PvmFragSize, 4080));
    SHOW(pvm_setopt(PvmResvTids, 1));
    SHOW(pvm_setopt(PvmResvTids, 5));
    SHOW(pvm_setopt(PvmResvTids, 0));
    SHOW(pvm_setopt(PvmShowTids, 0));
    SHOW(pvm_setopt(PvmShowTids, -3));
    SHOW(pvm_setopt(PvmShowTids, 1));
    SHOW(pvm_setopt(PvmPollType, PvmPollSleep));
    SHOW(pvm_setopt(PvmPollTime, 10));
    SHOW(pvm_setopt(PvmTraceOptions, 0));
    SHOW(pvm_setopt(PvmTraceOptions, PvmTraceFull));
    SHOW(pvm_setopt(PvmTraceOptions, PvmTraceCount));
    SHOW(pvm_setopt(PvmTraceOptions, 4));
    SHOW(pvm_getopt(PvmTraceOptions));
    SHOW(pvm_setopt(PvmTraceBuffer, 100));
    SHOW(pvm_setopt(PvmTraceBuffer, -1));
    SHOW(pvm_setopt(PvmTraceBuffer, 0));
    SHOW(pvm_setopt(0, 1));
    SHOW(pvm_setopt(26, 1));
    SHOW(pvm_setopt(-1, 1));
    SHOW(pvm_errno);
    pvm_exit();
    return 0;
}
