/* A message to oneself has its place among the messages of others. */
#include "order.h"

#define PIPE 0
enum { RELAYED, CAST, TOLD, WAYS };
static const char *ways[] = {"what C answered", "a multicast, of which C told by a pipe",
                             "a message, of which C told by a pipe"};

/* B: FIRST has been sent to it before it sends SECOND to itself. */
static int receiver(void)
{
    int parent = pvm_parent(), me = pvm_mytid(), tids[2], rounds, way, r, wrong, pipe = order_pipe(parent, PIPE, 0);
    char told;
    order_started(2, tids, &rounds);
    for (way = 0; way < WAYS; way++) {
        for (r = wrong = 0; r < rounds; r++) {
            if (way == RELAYED)
                pvm_recv(tids[1], GO);
            else if (read(pipe, &told, 1) != 1)
                return 1;
            case_signal(me, SECOND);
            wrong += order_next() != FIRST;
            order_next();
            /* What is sent because of a message to oneself comes after it. */
            case_signal(me, SECOND);
            case_signal(parent, GO);
            wrong += order_next() != SECOND;
            order_next();
            case_signal(parent, DONE);
        }
        order_send(parent, ASK, wrong);
    }
    pvm_exit();
    return 0;
}

/* C: it answers a message by one to B, or by a byte in a pipe that B reads. */
static int teller(void)
{
    int tids[2], rounds, way, r, pipe = order_pipe(pvm_parent(), PIPE, 0);
    order_started(2, tids, &rounds);
    for (way = 0; way < WAYS; way++) {
        for (r = 0; r < rounds; r++) {
            pvm_recv(pvm_parent(), -1);
            if (way == RELAYED)
                case_signal(tids[0], GO);
            else if (write(pipe, "!", 1) != 1)
                return 1;
        }
    }
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int tids[2], rounds = order_rounds(150), way, r;
    case_begin();
    if (argc > 1)
        return strcmp(argv[1], "teller") ? receiver() : teller();
    pvm_mytid();
    order_pipe(pvm_mytid(), PIPE, 1);
    case_spawn_here("receiver", 1, &tids[0]);
    case_spawn_here("teller", 1, &tids[1]);
    order_start(2, tids, rounds);
    for (way = 0; way < WAYS; way++) {
        for (r = 0; r < rounds; r++) {
            pvm_initsend(PvmDataDefault);
            if (way == CAST) {
                pvm_mcast(tids, 2, FIRST);
            } else {
                pvm_send(tids[0], FIRST);
                case_signal(tids[1], GO);
            }
            order_await(tids[0], GO);
            case_signal(tids[0], FIRST);
            order_await(tids[0], DONE);
        }
        order_await(tids[0], ASK);
        printf("%s: out of order: %d\n", ways[way], order_value());
    }
    order_unpipe(PIPE);
    pvm_exit();
    return 0;
}
