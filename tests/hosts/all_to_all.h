/* Tests that messages between tasks of different hosts stay in order while all tasks send. */
#ifndef ALL_TO_ALL_H
#define ALL_TO_ALL_H

#include "hosts.h"

#define TASKS 4
#define MESSAGES 400

/* Each task sends numbered messages of changing sizes to all, and then receives all of them. */
static void all_to_all(int *tids, int mine, int route)
{
    int next[TASKS] = {0}, i, k, size, number, from, source, wrong = 0, missing = 0;
    static char bytes[200000];
    pvm_setopt(PvmRoute, route);
    for (i = 0; i < MESSAGES; i++) {
        for (k = 0; k < TASKS; k++) {
            if (k == mine)
                continue;
            size = i % 50 == 49 ? 150000 : (i * 37) % 700;
            memset(bytes, i, size);
            pvm_initsend(PvmDataRaw);
            pvm_pkint(&mine, 1, 1);
            pvm_pkint(&i, 1, 1);
            pvm_pkint(&size, 1, 1);
            pvm_pkbyte(bytes, size, 1);
            pvm_send(tids[k], 20 + route);
        }
    }
    for (i = 0; i < MESSAGES * (TASKS - 1); i++) {
        int message = case_receive(-1, 20 + route, PATIENCE);
        if (message <= 0) {
            missing = MESSAGES * (TASKS - 1) - i;
            break;
        }
        pvm_bufinfo(message, NULL, NULL, &source);
        pvm_upkint(&from, 1, 1);
        pvm_upkint(&number, 1, 1);
        pvm_upkint(&size, 1, 1);
        pvm_upkbyte(bytes, size, 1);
        if (source != tids[from] || number != next[from] || (size && bytes[size - 1] != (char)number))
            wrong++;
        next[from] = number + 1;
    }
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&wrong, 1, 1);
    pvm_pkint(&missing, 1, 1);
    pvm_send(pvm_parent(), 30);
}

/* Runs the whole scenario: all tasks send to all, first on one of these routes, then on the next one. */
static int order_scenario(int argc, int *routes, int count)
{
    int tids[TASKS], i, k, wrong, missing, mine, route;
    case_begin();
    if (argc > 1) {
        pvm_recv(pvm_parent(), 1);
        pvm_upkint(&mine, 1, 1);
        pvm_upkint(tids, TASKS, 1);
        while (pvm_recv(pvm_parent(), 2) > 0 && pvm_upkint(&route, 1, 1) == 0 && route)
            all_to_all(tids, mine, route);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(spawn_on_all("child", tids));
    for (i = 0; i < TASKS; i++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&i, 1, 1);
        pvm_pkint(tids, TASKS, 1);
        pvm_send(tids[i], 1);
    }
    for (k = 0; k < count; k++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&routes[k], 1, 1);
        pvm_mcast(tids, TASKS, 2);
        for (i = 0; i < TASKS; i++) {
            SHOW(case_receive(tids[i], 30, 2 * PATIENCE) > 0);
            pvm_upkint(&wrong, 1, 1);
            pvm_upkint(&missing, 1, 1);
            printf("route %d, task %d: %d wrong, %d missing\n", routes[k], i, wrong, missing);
        }
    }
    route = 0;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&route, 1, 1);
    pvm_mcast(tids, TASKS, 2);
    pvm_exit();
    return 0;
}

#endif
