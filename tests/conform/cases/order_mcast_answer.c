/* Each receiver of a multicast answers it at once to all the others: the multicast comes before all answers. */
#include "order.h"

#define WORKERS 4
#define LONG 65536
enum { SHORT_SENDS, SHORT_CASTS, LONG_SENDS, LONG_CASTS, WAYS };
static const char *ways[] = {"short, answered by pvm_send", "short, answered by pvm_mcast",
                             "long, answered by pvm_send", "long, answered by pvm_mcast"};

static int rounds_of(int rounds, int way)
{
    return way < LONG_SENDS ? rounds : rounds / 4 + 1;
}

static void answer(int way, int me, int *tids)
{
    int i;
    for (i = 0; way % 2 == 0 && i < WORKERS; i++)
        if (i != me)
            order_send(tids[i], SECOND, 0);
    if (way % 2 == 1) {
        pvm_initsend(PvmDataDefault);
        pvm_mcast(tids, WORKERS, SECOND);
    }
}

static int worker(void)
{
    int parent = pvm_parent(), tids[WORKERS], rounds, r, way, early;
    int me = order_started(WORKERS, tids, &rounds);
    for (way = 0; way < WAYS; way++) {
        for (r = early = 0; r < rounds_of(rounds, way); r++) {
            int cast = 0, answers = 0;
            while (!cast || answers < WORKERS - 1) {
                if (order_next() == FIRST) {
                    cast = 1;
                    answer(way, me, tids);
                } else {
                    answers++;
                    early += !cast;
                }
            }
            case_signal(parent, DONE);
        }
        order_send(parent, ASK, early);
    }
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    static char bytes[LONG];
    int tids[WORKERS], rounds = order_rounds(300), r, i, way;
    case_begin();
    if (argc > 1)
        return worker();
    pvm_mytid();
    case_spawn_here("worker", WORKERS, tids);
    order_start(WORKERS, tids, rounds);
    for (way = 0; way < WAYS; way++) {
        for (r = 0; r < rounds_of(rounds, way); r++) {
            pvm_initsend(PvmDataRaw);
            pvm_pkbyte(bytes, way < LONG_SENDS ? 8 : LONG, 1);
            pvm_mcast(tids, WORKERS, FIRST);
            for (i = 0; i < WORKERS; i++)
                order_await(tids[i], DONE);
        }
        printf("%s: out of order: %d\n", ways[way], order_sum(WORKERS, tids, ASK));
    }
    pvm_exit();
    return 0;
}
