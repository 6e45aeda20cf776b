/* The console's reset ends every task except those that have set PvmNoReset, and removes the mailbox entries
 * whose owner has ended. */
//@ fresh
//@ timeout 30
//@ differs D14: count: 3 => count: 2
//@ differs D14: case_receive(-1, GONE, 5) > 0: 0 => case_receive(-1, GONE, 5) > 0: 1
//@ differs D14: was lasting: 0 => was lasting: -31
//@ differs D14: after a reset: 'lasting' owned 1 'was lasting' owned 1 => after a reset: 'lasting' owned 1
//@ differs D14: in the end: 'was lasting' owned 1 => in the end:
#include "case.h"

enum { READY = 1, GONE = 2, STILL = 3 };

/* Runs a child of this kind, which waits until it is killed. */
static void child(char *kind)
{
    int parent = pvm_parent();
    if (!strcmp(kind, "lasting")) {
        pvm_setopt(PvmNoReset, 1);
    }
    if (!strcmp(kind, "was lasting")) {
        pvm_setopt(PvmNoReset, 1);
        pvm_setopt(PvmNoReset, 0);
    }
    pvm_initsend(PvmDataDefault);
    pvm_putinfo(kind, pvm_getsbuf(), PvmMboxPersistent);
    case_signal(parent, READY);
    if (!strcmp(kind, "brief")) {
        pvm_exit();
        exit(0);
    }
    pvm_recv(parent, STILL);
    case_signal(parent, STILL);
    pvm_exit();
    exit(0);
}

static void boxes(const char *when)
{
    struct pvmmboxinfo *boxes;
    int count = -1, i;
    SHOW(pvm_getmboxinfo("", &count, &boxes));
    printf("%s:", when);
    for (i = 0; i < count; i++)
        if (boxes[i].mi_name[0] != '#')
            printf(" '%s' owned %d", boxes[i].mi_name, boxes[i].mi_owners[0] != 0);
    printf("\n");
}

int main(int argc, char **argv)
{
    static char *kinds[] = {"plain", "lasting", "was lasting", "brief"};
    int tids[4], i, count, *list;
    char *arguments[] = {"child", NULL, NULL};
    case_begin();
    if (argc > 2)
        child(argv[2]);
    pvm_mytid();
    SHOW(pvm_setopt(PvmNoReset, 1));
    for (i = 0; i < 4; i++) {
        arguments[1] = kinds[i];
        SHOW(pvm_spawn(case_path(), arguments, PvmTaskDefault, "", 1, &tids[i]));
        SHOW(case_receive(tids[i], READY, 5) > 0);
    }
    case_gone(tids[3]);
    SHOW(pvm_notify(PvmTaskExit, GONE, 3, tids));
    boxes("before");
    pvm_getnoresets(&list, &count);
    SHOW(count);
    fflush(stdout);
    SHOW(system("echo 'reset info' | pvm > /dev/null 2>&1"));
    boxes("after the reset of mailboxes");
    SHOW(system("echo reset | pvm > /dev/null 2>&1"));
    SHOW(case_receive(-1, GONE, 5) > 0);
    SHOW(case_receive(-1, GONE, 5) > 0);
    SHOW(case_receive(-1, GONE, 0.5) > 0);
    for (i = 0; i < 4; i++)
        printf("%s: %d\n", kinds[i], pvm_pstat(tids[i]));
    boxes("after a reset");
    SHOW(case_signal(tids[1], STILL));
    SHOW(case_receive(tids[1], STILL, 5) > 0);
    case_gone(tids[1]);
    SHOW(system("echo 'reset info' | pvm > /dev/null 2>&1"));
    boxes("in the end");
    pvm_exit();
    return 0;
}
