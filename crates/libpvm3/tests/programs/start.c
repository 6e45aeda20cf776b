/* A program that starts and halts a machine itself. */
#include "check.h"
#include <signal.h>

int main(void)
{
    char *none[] = { NULL };
    int hosts = 0;

    pvm_setopt(PvmAutoErr, 0);
    CHECK(pvm_mytid() == PvmSysErr);
    CHECK(pvm_start_pvmd(0, none, 1) == 0);
    CHECK(pvm_mytid() > 0 && getenv("PVMSOCK") != NULL);
    CHECK(pvm_start_pvmd(0, none, 1) == PvmDupHost);
    CHECK(pvm_config(&hosts, NULL, NULL) == 0 && hosts == 1);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1); /* the daemon is not a child of this process */
    signal(SIGTERM, SIG_IGN);
    CHECK(pvm_halt() == 0);
    CHECK(pvm_nrecv(-1, -1) == PvmSysErr);
    return 0;
}
