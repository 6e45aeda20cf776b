/* Messages take a fabric between hosts that have one, and TCP to the host that has none; programs ask for nothing. */
//@ ours-only D3: skip
//@ hostfile * fabric=tcp
//@ hostfile &delta fabric=off
//@ daemon-env HPVM_ORDER=pairs
//@ timeout 90
#include "all_to_all.h"
#include <time.h>

#define PvmFabricTasks 1006

/* Sends to the peers and takes in what arrives until this task reaches that number of peers by the fabric. */
static int settle(int *peers, int count, int wanted)
{
    time_t end = time(NULL) + 2 * (int)PATIENCE;
    int i;
    do {
        for (i = 0; i < count; i++) {
            pvm_initsend(PvmDataRaw);
            pvm_send(peers[i], 40);
        }
        case_receive(-1, 40, 0.05);
        while (pvm_nrecv(-1, 40) > 0)
            ;
    } while (pvm_getopt(PvmFabricTasks) < wanted && time(NULL) < end);
    return pvm_getopt(PvmFabricTasks);
}

int main(int argc, char **argv)
{
    /* Each task reaches the others of alfa, bravo and charlie that are on other hosts, parent included. */
    static const int wanted[TASKS] = {2, 3, 3, 0};
    static const int routes[] = {PvmAllowDirect, PvmRouteDirect};
    int tids[TASKS + 1], i, k, mine, reached, wrong, missing;
    (void)argv;
    case_begin();
    tids[TASKS] = pvm_mytid();
    if (argc > 1) {
        pvm_recv(pvm_parent(), 1);
        pvm_upkint(&mine, 1, 1);
        pvm_upkint(tids, TASKS + 1, 1);
        reached = settle(tids, TASKS + 1, wanted[mine]);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&reached, 1, 1);
        pvm_send(pvm_parent(), 41);
        for (k = 0; k < 2; k++) {
            pvm_recv(pvm_parent(), 2);
            all_to_all(tids, mine, routes[k]);
        }
        pvm_recv(pvm_parent(), 2);
        pvm_exit();
        return 0;
    }
    SHOW(spawn_on_all("child", tids));
    for (i = 0; i < TASKS; i++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&i, 1, 1);
        pvm_pkint(tids, TASKS + 1, 1);
        pvm_send(tids[i], 1);
    }
    SHOW(settle(tids, TASKS, 2));
    for (i = 0; i < TASKS; i++) {
        SHOW(case_receive(tids[i], 41, 2 * PATIENCE) > 0);
        pvm_upkint(&reached, 1, 1);
        printf("task %d reaches %d by the fabric\n", i, reached);
    }
    for (k = 0; k < 3; k++) {
        pvm_initsend(PvmDataDefault);
        pvm_mcast(tids, TASKS, 2);
        for (i = 0; k < 2 && i < TASKS; i++) {
            SHOW(case_receive(tids[i], 30, 2 * PATIENCE) > 0);
            pvm_upkint(&wrong, 1, 1);
            pvm_upkint(&missing, 1, 1);
            printf("route %d, task %d: %d wrong, %d missing\n", routes[k], i, wrong, missing);
        }
    }
    SHOW(pvm_getopt(PvmFabricTasks));
    pvm_exit();
    return 0;
}
