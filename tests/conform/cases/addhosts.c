/* pvm_addhosts of hosts that cannot be added. */
//@ fresh
//@ may-differ D24: status 0: -36 => status 0: -6
//@ may-differ D24: status 1: -36 => status 1: -28
//@ may-differ D24: status 2: -36 => status 2: -2
#include "case.h"

int main(void)
{
    int status[3] = {-99, -99, -99}, i;
    char here[256], *names[3];
    case_begin();
    pvm_mytid();
    gethostname(here, sizeof here);
    names[0] = "no-such-host.invalid";
    names[1] = here;
    names[2] = "bad option=1";
    SHOW(pvm_addhosts(names, 3, status));
    for (i = 0; i < 3; i++)
        printf("status %d: %d\n", i, status[i]);
    SHOW(pvm_addhosts(names, 1, NULL));
    SHOW(pvm_config(&i, NULL, NULL));
    SHOW(i);
    pvm_exit();
    return 0;
}
