/* Output of tasks on other hosts goes to a collector in whole lines, also through a child that is a collector
 * itself. */
//@ unordered
#include "hosts.h"

int main(int argc, char **argv)
{
    int tids[4], i;
    char *grandchild[] = {"grandchild", NULL};
    case_begin();
    if (argc > 1 && strcmp(argv[1], "child") == 0) {
        char name[64];
        gethostname(name, sizeof name);
        /* The collector is in pvm_exit by the time that the first child ends, so it prints that it waits. */
        pvm_recv(pvm_parent(), 1);
        usleep(300000);
        printf("on %s\n", name);
        for (i = 0; i < 50; i++)
            printf("line %d of %s\n", i, name);
        if (strcmp(name, "bravo") == 0)
            pvm_spawn(case_path(), grandchild, PvmTaskHost, "delta", 1, NULL);
        fprintf(stderr, "an error of %s\n", name);
        printf("without an end");
        fflush(stdout);
        pvm_exit();
        return 0;
    }
    if (argc > 1) {
        char long_line[9000];
        memset(long_line, 'x', sizeof long_line);
        long_line[sizeof long_line - 1] = 0;
        pvm_parent();
        printf("I am the grandchild\n%s\n", long_line);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(pvm_catchout(stdout));
    SHOW(spawn_on_all("child", tids));
    pvm_initsend(PvmDataDefault);
    pvm_mcast(tids, 4, 1);
    pvm_exit();
    return 0;
}
