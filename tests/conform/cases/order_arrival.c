/* Messages of tasks that know nothing of each other are received in the order in which they were sent, by whatever
 * call. The tasks take turns by pipes, so that PVM does not see this order. */
#include "order.h"

#define SENDERS 4
static const char *calls[] = {"pvm_recv(-1, -1)", "pvm_recv(-1, tag)", "pvm_nrecv", "pvm_trecv", "pvm_precv",
                              "pvm_probe"};
enum { ANY, TAG, NRECV, TRECV, PRECV, PROBE, CALLS };

/* What is passed from pipe to pipe: whose turn it is. */
struct turns {
    int done;
    int order[SENDERS + 1]; /* the last one is the receiver */
};

static int pipes[SENDERS + 1];

static void pass(struct turns *turns)
{
    if (write(pipes[turns->order[turns->done]], turns, sizeof *turns) != sizeof *turns)
        printf("no turn is passed: %s\n", strerror(errno));
}

static int sender(void)
{
    int parent = pvm_parent(), tids[SENDERS], value, i, me = order_started(SENDERS, tids, &value);
    struct turns turns;
    for (i = 0; i <= SENDERS; i++)
        pipes[i] = order_pipe(parent, i, 0);
    case_signal(parent, DONE);
    while (read(pipes[me], &turns, sizeof turns) == sizeof turns && turns.done < SENDERS) {
        order_send(parent, FIRST, me);
        order_settle();
        turns.done++;
        pass(&turns);
    }
    pvm_exit();
    return 0;
}

/* Receives the next message by a call, and returns its sender. */
static int take(int call)
{
    struct timeval second = {1, 0};
    int value = -1;
    switch (call) {
    case ANY:
        pvm_recv(-1, -1);
        break;
    case TAG:
        pvm_recv(-1, FIRST);
        break;
    case NRECV:
        while (pvm_nrecv(-1, FIRST) == 0)
            ;
        break;
    case TRECV:
        while (pvm_trecv(-1, FIRST, &second) == 0)
            ;
        break;
    case PRECV:
        pvm_precv(-1, FIRST, &value, 1, PVM_INT, NULL, NULL, NULL);
        return value;
    default:
        while (pvm_probe(-1, FIRST) == 0)
            ;
        pvm_recv(-1, FIRST);
    }
    return order_value();
}

/* Returns the turns of a round. */
static struct turns turns_of(unsigned round)
{
    struct turns turns = {0, {0, 1, 2, 3, SENDERS}};
    int i, other, old;
    for (i = SENDERS - 1; i > 0; i--) {
        round = round * 1103515245u + 12345u;
        other = (round >> 16) % (i + 1);
        old = turns.order[i];
        turns.order[i] = turns.order[other];
        turns.order[other] = old;
    }
    return turns;
}

int main(int argc, char **argv)
{
    int tids[SENDERS], call, rounds = order_rounds(100), r, i, wrong;
    struct turns turns, end;
    case_begin();
    if (argc > 1)
        return sender();
    pvm_mytid();
    for (i = 0; i <= SENDERS; i++)
        pipes[i] = order_pipe(pvm_mytid(), i, 1);
    case_spawn_here("sender", SENDERS, tids);
    order_start(SENDERS, tids, 0);
    for (i = 0; i < SENDERS; i++)
        order_await(tids[i], DONE);
    for (call = 0; call < CALLS; call++) {
        for (r = wrong = 0; r < rounds; r++) {
            int differ = 0;
            turns = turns_of(r);
            pass(&turns);
            if (read(pipes[SENDERS], &end, sizeof end) != sizeof end)
                return 1;
            for (i = 0; i < SENDERS; i++)
                differ |= take(call) != turns.order[i];
            wrong += differ;
        }
        printf("%s: out of order: %d\n", calls[call], wrong);
    }
    for (i = 0; i < SENDERS; i++) {
        end.done = SENDERS;
        end.order[SENDERS] = i;
        pass(&end);
    }
    for (i = 0; i <= SENDERS; i++)
        order_unpipe(i);
    pvm_exit();
    return 0;
}
