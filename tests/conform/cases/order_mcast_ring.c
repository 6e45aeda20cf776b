/* A multicast is there for all its receivers at one instant: the first one that gets it passes a token round a ring,
 * and no task gets the token before the multicast. */
#include "order.h"

#define WORKERS 4
enum { CAST = FIRST, TOKEN = SECOND };

static int worker(void)
{
    int parent = pvm_parent(), tids[WORKERS], rounds, r, early, way;
    int me = order_started(WORKERS, tids, &rounds);
    pvm_joingroup("ring");
    case_signal(parent, DONE);
    for (way = 0; way < 2; way++) {
        for (r = early = 0; r < rounds; r++) {
            int cast = 0, token = me == 0;
            while (!cast || !token) {
                if (order_next() == TOKEN) {
                    token = 1;
                    early += !cast;
                } else {
                    cast = 1;
                }
            }
            if (me < WORKERS - 1)
                case_signal(tids[me + 1], TOKEN);
            case_signal(parent, DONE);
        }
        order_send(parent, ASK, early);
    }
    pvm_lvgroup("ring");
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int tids[WORKERS], rounds = order_rounds(500), r, i, way;
    case_begin();
    if (argc > 1)
        return worker();
    pvm_mytid();
    pvm_joingroup("ring");
    case_spawn_here("worker", WORKERS, tids);
    order_start(WORKERS, tids, rounds);
    for (i = 0; i < WORKERS; i++)
        order_await(tids[i], DONE);
    for (way = 0; way < 2; way++) {
        for (r = 0; r < rounds; r++) {
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&r, 1, 1);
            if (way == 0)
                pvm_mcast(tids, WORKERS, CAST);
            else
                pvm_bcast("ring", CAST);
            for (i = 0; i < WORKERS; i++)
                order_await(tids[i], DONE);
        }
        printf("%s: out of order: %d\n", way == 0 ? "pvm_mcast" : "pvm_bcast", order_sum(WORKERS, tids, ASK));
    }
    pvm_lvgroup("ring");
    pvm_exit();
    return 0;
}
