/* pvm_spawn: which calls are refused, and with which error. */
//@ differs 2.0: pvm_errno: -2 => pvm_errno: -7
#include "case.h"

static void attempt(char *file, int flags, char *where, int count)
{
    int tids[4] = {-99, -99, -99, -99}, i, result;
    result = pvm_spawn(file, NULL, flags, where, count, tids);
    printf("spawn %s flags %d where %s count %d: %d, tids", file, flags, where ? where : "NULL", count, result);
    for (i = 0; i < 3; i++)
        printf(" %d", tids[i] > 0 ? 1 : tids[i]);
    printf("\n");
}

int main(void)
{
    int tids[2];
    case_begin();
    pvm_mytid();
    attempt("no-such-program", PvmTaskDefault, "", 1);
    attempt("no-such-program", PvmTaskDefault, "", 3);
    attempt("/no/such/program", PvmTaskDefault, "", 2);
    attempt("/tmp", PvmTaskDefault, "", 1);        /* a directory */
    attempt("/etc/passwd", PvmTaskDefault, "", 1); /* not executable */
    attempt("/bin/true", PvmTaskDefault, "", 0);
    attempt("/bin/true", PvmTaskDefault, "", -1);
    attempt("/bin/true", PvmTaskHost, "no-such-host", 2);
    attempt("/bin/true", PvmTaskHost, NULL, 1);
    attempt("/bin/true", PvmTaskHost, "", 1);
    attempt("/bin/true", PvmTaskArch, "NOARCH", 2);
    attempt("/bin/true", PvmTaskArch, NULL, 1);
    attempt("/bin/true", PvmHostCompl, "", 1);
    attempt("/bin/true", PvmTaskHost | PvmHostCompl, ".", 1);
    attempt("/bin/true", PvmTaskHost | PvmHostCompl, "no-such-host", 1);
    attempt("/bin/true", PvmTaskArch | PvmHostCompl, "LINUX64", 1);
    attempt("/bin/true", PvmTaskArch | PvmHostCompl, "NOARCH", 1);
    attempt("/bin/true", PvmMppFront, "", 1);
    attempt("/bin/true", PvmTaskHost | PvmTaskArch, "LINUX64", 1);
    attempt("/bin/true", 1024, "", 1);
    SHOW(pvm_spawn("", NULL, PvmTaskDefault, "", 1, tids));
    SHOW(pvm_errno);
    pvm_exit();
    return 0;
}
