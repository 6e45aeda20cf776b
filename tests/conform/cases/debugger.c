/* PvmTaskDebug runs the debugger with the program's path and arguments. */
//@ fresh
//@ daemon-env PVM_DEBUGGER={root}/tests/conform/data/debugger
#include "case.h"

int main(void)
{
    int tid = 0;
    char *arguments[] = {"one", "two", NULL};
    case_begin();
    pvm_mytid();
    pvm_catchout(stdout);
    SHOW(pvm_spawn("/bin/true", arguments, PvmTaskDebug, "", 1, &tid));
    SHOW(tid > 0 ? 1 : tid);
    pvm_exit();
    return 0;
}
