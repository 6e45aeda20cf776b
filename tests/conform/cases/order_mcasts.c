/* Multicasts of several senders are received in the same order by all their receivers. */
#include "order.h"

#define SENDERS 3
#define RECEIVERS 3
#define TASKS (SENDERS + RECEIVERS)
#define LONG 10000 /* several fragments of PVM's daemon */

static void send_casts(int me, int *receivers, int rounds)
{
    static char bytes[LONG];
    int r;
    for (r = 0; r < rounds; r++) {
        pvm_initsend(PvmDataRaw);
        pvm_pkint(&me, 1, 1);
        pvm_pkbyte(bytes, r % 5 == me ? LONG : 8, 1);
        pvm_mcast(receivers, RECEIVERS, FIRST);
    }
}

static int task(void)
{
    int parent = pvm_parent(), tids[TASKS], rounds, i, *seen;
    int me = order_started(TASKS, tids, &rounds);
    if (me < SENDERS) {
        pvm_recv(parent, GO);
        send_casts(me, tids + SENDERS, rounds);
        pvm_recv(parent, STOP);
    } else {
        seen = calloc(rounds * SENDERS, sizeof *seen);
        case_signal(parent, DONE);
        for (i = 0; i < rounds * SENDERS; i++) {
            pvm_recv(-1, FIRST);
            seen[i] = order_value();
        }
        pvm_initsend(PvmDataDefault);
        pvm_pkint(seen, rounds * SENDERS, 1);
        pvm_send(parent, ASK);
    }
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int tids[TASKS], rounds = order_rounds(1000), count = rounds * SENDERS, i, k, differ, *seen[2];
    case_begin();
    if (argc > 1)
        return task();
    pvm_mytid();
    case_spawn_here("task", TASKS, tids);
    order_start(TASKS, tids, rounds);
    for (i = SENDERS; i < TASKS; i++)
        order_await(tids[i], DONE);
    order_tell(SENDERS, tids, GO, 0);
    seen[0] = calloc(count, sizeof *seen[0]);
    seen[1] = calloc(count, sizeof *seen[1]);
    for (i = 0; i < RECEIVERS; i++) {
        pvm_recv(tids[SENDERS + i], ASK);
        pvm_upkint(seen[i > 0], count, 1);
        for (k = differ = 0; i > 0 && k < count; k++)
            differ += seen[0][k] != seen[1][k];
        if (i > 0)
            printf("receiver %d: in another place than at receiver 0: %d\n", i, differ);
    }
    order_tell(SENDERS, tids, STOP, 0);
    pvm_exit();
    return 0;
}
