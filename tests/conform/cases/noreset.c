/* PvmNoReset and pvm_getnoresets. */
//@ fresh
//@ differs D14: noresets: 0, 2: t#2 t#2 => noresets: 0, 1: t#2
#include "case.h"

static void list(void)
{
    int *tids, count = -1, i, result = pvm_getnoresets(&tids, &count);
    printf("noresets: %d, %d:", result, count);
    for (i = 0; i < count; i++)
        printf(" t%x", tids[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    int child;
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
    list();
    SHOW(pvm_setopt(PvmNoReset, 1));
    SHOW(pvm_getopt(PvmNoReset));
    SHOW(pvm_setopt(PvmNoReset, 1));
    list();
    SHOW(case_spawn("child", 1, &child));
    SHOW(case_receive(child, 1, 5) > 0);
    list();
    SHOW(pvm_setopt(PvmNoReset, 0));
    SHOW(pvm_getopt(PvmNoReset));
    list();
    case_signal(child, 2);
    case_gone(child);
    list();
    pvm_exit();
    return 0;
}
