/* pvm_spawn on several hosts: tasks in blocks, a named host, an architecture, all hosts except one, and errors. */
//@ differs D25: flags 1 where `charlie.hpvm.test` count 1: 0; -6 => flags 1 where `charlie.hpvm.test` count 1: 1; c0000
#include "hosts.h"

/* Starts tasks, and prints their hosts. */
static void start(char *program, int flags, char *where, int count)
{
    int tids[32], i, well;
    char *arguments[] = {"child", NULL};
    memset(tids, 0, sizeof tids);
    well = pvm_spawn(program, arguments, flags, where, count, tids);
    printf("flags %d where `%s` count %d: %d;", flags, where ? where : "(null)", count, well);
    for (i = 0; i < count; i++) {
        if (tids[i] > 0)
            printf(" %x", pvm_tidtohost(tids[i]));
        else
            printf(" %d", tids[i]);
    }
    printf("\n");
    for (i = 0; i < count; i++)
        if (tids[i] > 0)
            pvm_kill(tids[i]);
    for (i = 0; i < count; i++)
        if (tids[i] > 0)
            case_gone(tids[i]);
}

int main(int argc, char **argv)
{
    case_begin();
    if (argc > 1) {
        pvm_recv(-1, -1);
        return 0;
    }
    pvm_mytid();
    start(case_path(), PvmTaskDefault, "", 4);
    start(case_path(), PvmTaskDefault, "", 9);
    start(case_path(), PvmTaskDefault, NULL, 1);
    start(case_path(), PvmTaskHost, "charlie", 3);
    start(case_path(), PvmTaskHost, ".", 2);
    start(case_path(), PvmTaskHost, "nowhere", 1);
    start(case_path(), PvmTaskHost, "", 1);
    start(case_path(), PvmTaskHost | PvmHostCompl, "alfa", 6);
    start(case_path(), PvmTaskHost | PvmHostCompl, ".", 3);
    start(case_path(), PvmTaskArch, "LINUX64", 8);
    start(case_path(), PvmTaskArch, "SUN4", 2);
    start(case_path(), PvmTaskArch | PvmHostCompl, "LINUX64", 2);
    start(case_path(), PvmTaskArch | PvmHostCompl, "SUN4", 5);
    start("no-such-program", PvmTaskDefault, "", 4);
    start("/etc/passwd", PvmTaskHost, "delta", 2);
    start("no-such-program", PvmTaskHost, "bravo", 1);
    /* This is the last one, since a successful spawn changes the host at which the next one begins. */
    start(case_path(), PvmTaskHost, "charlie.hpvm.test", 1);
    pvm_exit();
    return 0;
}
