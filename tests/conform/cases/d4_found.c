/* Groups work in a machine whose search path is empty (D4). */
//@ daemon-env PVM_PATH=/nonexistent
//@ differs D4: libpvm [t#1]: gs_getgstid() failed to start group server: No such file => (nothing)
//@ differs D4: pvm_joingroup("g"): -14 => pvm_joingroup("g"): 0
//@ differs D4: libpvm [t#1]: gs_getgstid() failed to start group server: No such file => (nothing)
//@ differs D4: pvm_gsize("g"): -14 => pvm_gsize("g"): 1
#include "group.h"

int main(void)
{
    case_begin();
    SHOW(pvm_joingroup("g"));
    SHOW(pvm_gsize("g"));
    pvm_exit();
    return 0;
}
