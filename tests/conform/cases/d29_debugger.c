/* D29: a missing debugger is an error. */
//@ fresh
//@ differs D29: pvm_spawn("/bin/true", NULL, PvmTaskDebug, "", 1, &tid): 1 => pvm_spawn("/bin/true", NULL, PvmTaskDebug, "", 1, &tid): 0
//@ differs D29: tid > 0 ? 1 : tid: 1 => tid > 0 ? 1 : tid: -7
//@ daemon-env PVM_DEBUGGER=/no/such/debugger
#include "case.h"

int main(void)
{
    int tid = 0;
    case_begin();
    pvm_mytid();
    SHOW(pvm_spawn("/bin/true", NULL, PvmTaskDebug, "", 1, &tid));
    SHOW(tid > 0 ? 1 : tid);
    pvm_exit();
    return 0;
}
