/* pvm_addhosts with every kind of name, with hosts that are in the machine already, and with hosts that do not
 * exist. */
//@ hosts 1
//@ timeout 60
//@ differs D25: pvm_mstat("bravo"): -6 => pvm_mstat("bravo"): 0
#include "hosts.h"

static void add(int count, char **names)
{
    int status[8], i;
    printf("add: %d\n", pvm_addhosts(names, count, status));
    for (i = 0; i < count; i++) {
        if (status[i] > 0)
            printf("    %s: host %x\n", names[i], status[i]);
        else
            printf("    %s: %d\n", names[i], status[i]);
    }
}

static void table(void)
{
    struct pvmhostinfo *hosts;
    int count, i;
    pvm_config(&count, NULL, &hosts);
    for (i = 0; i < count; i++)
        printf("    %s %x %s %d\n", hosts[i].hi_name, hosts[i].hi_tid, hosts[i].hi_arch, hosts[i].hi_speed);
}

int main(void)
{
    char *alias[] = {"bravo-alias"}, *again[] = {"bravo", "bravo-alias", "alfa", "10.77.0.2"};
    char *many[] = {"charlie.hpvm.test", "nowhere.hpvm.test", "10.77.0.4 sp=500"};
    char *wrong[] = {"charlie xx=1", "", "delta"};
    case_begin();
    pvm_mytid();
    add(1, alias);
    SHOW(pvm_mstat("bravo-alias"));
    SHOW(pvm_mstat("bravo"));
    add(4, again);
    add(3, many);
    table();
    add(3, wrong);
    SHOW(pvm_delhosts(alias, 1, NULL));
    sleep(1);
    add(1, again);
    table();
    pvm_exit();
    return 0;
}
