/* A barrier of zero members is refused (D6); on PVM it ends all barriers of its group. */
//@ differs D6: pvm_barrier("g", 0): -3 => pvm_barrier("g", 0): -2
//@ differs D6: pvm_barrier("g", 0) again: -3 => pvm_barrier("g", 0) again: -2
//@ differs D6: pvm_barrier("g", -2): -3 => pvm_barrier("g", -2): -2
//@ differs D6: pvm_barrier("g", -1): -3 => pvm_barrier("g", -1): 0
//@ differs D6: pvm_barrier("g", 1): -3 => pvm_barrier("g", 1): 0
#include "group.h"

int main(void)
{
    case_begin();
    SHOW(pvm_joingroup("g"));
    SHOW(pvm_barrier("g", 1));
    SHOW(pvm_barrier("g", 0));
    printf("pvm_barrier(\"g\", 0) again: %d\n", pvm_barrier("g", 0));
    SHOW(pvm_barrier("g", -2));
    SHOW(pvm_barrier("g", -1));
    SHOW(pvm_barrier("g", 1));
    pvm_exit();
    return 0;
}
