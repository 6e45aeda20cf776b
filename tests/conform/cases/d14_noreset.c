/* D14: when a task switches PvmNoReset off, the entries of other tasks stay. */
//@ fresh
//@ differs D14: libpvm [t#1]: pvm_setopt(): Can't contact local daemon\npvm_setopt(PvmNoReset, 0): -14 => pvm_setopt(PvmNoReset, 0): 1
//@ differs D14: count: 2 => count: 1
#include "case.h"

int main(int argc, char **argv)
{
    int child, *tids, count = -1;
    case_begin();
    if (argc > 1) {
        int parent = pvm_parent();
        pvm_setopt(PvmNoReset, 1);
        case_signal(parent, 1);
        pvm_recv(parent, 2);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(case_spawn("child", 1, &child));
    SHOW(case_receive(child, 1, 5) > 0);
    SHOW(pvm_setopt(PvmNoReset, 1));
    SHOW(pvm_setopt(PvmNoReset, 0));
    SHOW(pvm_getnoresets(&tids, &count));
    SHOW(count);
    SHOW(count > 0 && tids[0] == child);
    case_signal(child, 2);
    case_gone(child);
    pvm_exit();
    return 0;
}
