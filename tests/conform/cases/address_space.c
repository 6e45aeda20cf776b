/* Thirty-two tasks with a small address space; each sends to all others. */
#include "case.h"
#include <sys/resource.h>

#define TASKS 32
#define LONG 50000

static int body[LONG];

static void all_to_all(int *tids, int me)
{
    int at, long_sum = 0, short_sum = 0, one;
    for (at = 0; at < TASKS; at++)
        if (at != me) {
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&me, 1, 1);
            pvm_send(tids[at], 1);
        }
    for (at = 0; at < LONG; at++)
        body[at] = me;
    pvm_initsend(PvmDataRaw);
    pvm_pkint(body, LONG, 1);
    pvm_mcast(tids, TASKS, 2);
    for (at = 1; at < TASKS; at++) {
        pvm_recv(-1, 1);
        pvm_upkint(&one, 1, 1);
        short_sum += one;
        pvm_recv(-1, 2);
        pvm_upkint(body, LONG, 1);
        long_sum += body[LONG - 1];
    }
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&short_sum, 1, 1);
    pvm_pkint(&long_sum, 1, 1);
    pvm_send(pvm_parent(), 4);
}

int main(int count, char **words)
{
    struct rlimit limit;
    int tids[TASKS], at, sums[2], total = 0;
    limit.rlim_cur = limit.rlim_max = 400000L * 1024;
    setrlimit(RLIMIT_AS, &limit);
    if (count > 1) {
        pvm_recv(pvm_parent(), 3);
        pvm_upkint(tids, TASKS, 1);
        for (at = 0; tids[at] != pvm_mytid(); at++)
            ;
        all_to_all(tids, at);
        pvm_exit();
        return words == NULL;
    }
    case_begin();
    printf("started: %d\n", case_spawn("all", TASKS, tids));
    pvm_initsend(PvmDataDefault);
    pvm_pkint(tids, TASKS, 1);
    SHOW(pvm_mcast(tids, TASKS, 3));
    for (at = 0; at < TASKS; at++) {
        pvm_recv(-1, 4);
        pvm_upkint(sums, 2, 1);
        total += sums[0] + sums[1];
    }
    printf("all sums: %d\n", total);
    pvm_exit();
    return 0;
}
