/* pvm_start_pvmd of a daemon that refuses to start. */
//@ nodaemon
#include "case.h"

int main(void)
{
    char *two[] = {"one-file", "two-files"};
    case_begin();
    pvm_setopt(PvmAutoErr, 0);
    freopen("/dev/null", "w", stderr);
    SHOW(pvm_start_pvmd(2, two, 0));
    SHOW(pvm_mytid());
    return 0;
}
