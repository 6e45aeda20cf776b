/* Message handlers run in the order in which the messages were sent: A sends FIRST to B, and then causes C to send
 * SECOND and LAST to B. */
#include "order.h"

enum { LAST = 20, NEVER };
enum { BOTH, FIRST_ONLY, WAYS };
static const char *ways[] = {"both are handled", "the first is handled, the second received"};

static int first, second, wrong;

static int handle(int message)
{
    int tag = -1;
    pvm_bufinfo(message, NULL, &tag, NULL);
    first += tag == FIRST;
    second += tag == SECOND;
    wrong += tag == SECOND && !first;
    return 0;
}

static int receiver(void)
{
    int parent = pvm_parent(), rounds, way, r, handlers[2];
    pvm_recv(parent, START);
    rounds = order_value();
    handlers[0] = pvm_addmhf(-1, FIRST, -1, handle);
    handlers[1] = pvm_addmhf(-1, SECOND, -1, handle);
    for (way = 0; way < WAYS; way++) {
        if (way == FIRST_ONLY)
            pvm_delmhf(handlers[1]);
        for (r = wrong = 0; r < rounds; r++) {
            if (way == FIRST_ONLY) {
                pvm_recv(-1, SECOND);
                handle(pvm_getrbuf());
            }
            pvm_recv(-1, LAST);
            wrong += !first || !second;
            while (!first || !second)
                pvm_nrecv(-1, NEVER);
            first = second = 0;
            case_signal(parent, DONE);
        }
        order_send(parent, ASK, wrong);
    }
    pvm_delmhf(handlers[0]);
    pvm_exit();
    return 0;
}

static int answerer(void)
{
    int b, tag;
    pvm_recv(pvm_parent(), START);
    b = order_value();
    while ((tag = order_next()) != STOP) {
        order_send(b, SECOND, 0);
        order_send(b, LAST, 0);
    }
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int b, c, rounds = order_rounds(300), way, r;
    case_begin();
    if (argc > 1)
        return strcmp(argv[1], "answerer") ? receiver() : answerer();
    pvm_mytid();
    case_spawn_here("receiver", 1, &b);
    case_spawn_here("answerer", 1, &c);
    order_send(b, START, rounds);
    order_send(c, START, b);
    for (way = 0; way < WAYS; way++) {
        for (r = 0; r < rounds; r++) {
            order_send(b, FIRST, r);
            order_send(c, GO, r);
            order_await(b, DONE);
        }
        order_await(b, ASK);
        printf("%s: out of order: %d\n", ways[way], order_value());
    }
    order_send(c, STOP, 0);
    pvm_exit();
    return 0;
}
