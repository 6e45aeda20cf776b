/* pvm_start_pvmd, and pvm_halt of the machine that it has started. */
//@ nodaemon
//@ needs /usr/bin/pvmd
#include "case.h"
#include <signal.h>

int main(void)
{
    char *none[] = {NULL};
    int count;
    case_begin();
    signal(SIGTERM, SIG_IGN);
    SHOW(pvm_start_pvmd(0, none, 1));
    SHOW(getenv("PVMSOCK") != NULL);
    SHOW_HEX(pvm_mytid());
    SHOW(pvm_config(&count, NULL, NULL));
    SHOW(count);
    SHOW(pvm_start_pvmd(0, none, 0));
    SHOW(pvm_halt());
    return 0;
}
