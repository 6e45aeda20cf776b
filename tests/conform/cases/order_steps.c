/* A barrier made of messages: each task sends its data to all others, and reports to the first task, which answers all
 * reports by a multicast. With it a task has the data of this step, and none of the next. */
#include "order.h"

#define TASKS 5
enum { DATA = FIRST, REPORT = SECOND };

static int worker(void)
{
    int parent = pvm_parent(), tids[TASKS], rounds, step, i, wrong = 0, got[2] = {0, 0};
    int me = order_started(TASKS, tids, &rounds);
    for (step = 0; step < rounds; step++) {
        int *now = &got[step % 2], *next = &got[(step + 1) % 2], reports = 0, go = 0;
        for (i = 0; i < TASKS; i++)
            if (i != me)
                order_send(tids[i], DATA, step);
        if (me != 0)
            order_send(tids[0], REPORT, step);
        while (me == 0 ? reports < TASKS - 1 : !go) {
            int tag = order_next();
            if (tag == DATA)
                got[order_value() % 2]++;
            reports += tag == REPORT;
            go += tag == GO;
        }
        wrong += *now != TASKS - 1 || *next != 0;
        if (me == 0) {
            pvm_initsend(PvmDataDefault);
            pvm_mcast(tids, TASKS, GO);
        }
        while (*now < TASKS - 1) { /* what came too late */
            pvm_recv(-1, DATA);
            got[order_value() % 2]++;
        }
        *now = 0;
    }
    order_send(parent, ASK, wrong);
    pvm_recv(parent, STOP);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int tids[TASKS];
    case_begin();
    if (argc > 1)
        return worker();
    pvm_mytid();
    case_spawn_here("worker", TASKS, tids);
    order_start(TASKS, tids, order_rounds(500));
    printf("steps: out of order: %d\n", order_sum(TASKS, tids, ASK));
    order_tell(TASKS, tids, STOP, 0);
    pvm_exit();
    return 0;
}
