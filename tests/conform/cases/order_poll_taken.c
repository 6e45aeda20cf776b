/* The descriptor of pvm_getfds is readable for a message that another call has taken in, and for one to oneself. On
 * PVM 3.4.6 such a message is found only if the program calls pvm_nrecv before it waits. */
//@ ours-only 2.3: skip
#include "order.h"
#include <poll.h>

#define FDS_MAX 64
enum { NOTHING, CONFIG, STATE, SPAWN, SEND, SELF, BARRIER, CALLS };
static const char *calls[] = {"nothing", "pvm_config", "pvm_pstat", "pvm_spawn", "pvm_send", "a message to oneself",
                              "pvm_barrier"};

/* Returns whether the descriptors are or become readable. */
static int wakes(int milliseconds)
{
    struct pollfd list[FDS_MAX];
    int *fds, count = pvm_getfds(&fds), i;
    for (i = 0; i < count && i < FDS_MAX; i++)
        list[i] = (struct pollfd){fds[i], POLLIN, 0};
    return poll(list, i, milliseconds) > 0;
}

/* The other task: it answers, and joins in a barrier. */
static int answerer(void)
{
    int parent = pvm_parent(), tag;
    pvm_joingroup("poll");
    case_signal(parent, DONE);
    while ((tag = order_next()) != STOP) {
        if (tag != GO)
            continue;
        case_signal(parent, SECOND);
        order_ring();
        if (order_value() == BARRIER)
            pvm_barrier("poll", 2);
    }
    pvm_lvgroup("poll");
    pvm_exit();
    return 0;
}

static void make(int call, int tid)
{
    struct pvmhostinfo *hosts;
    int count, spawned;
    if (call == CONFIG)
        pvm_config(&count, NULL, &hosts);
    if (call == STATE)
        pvm_pstat(tid);
    if (call == SPAWN)
        case_spawn_here("nobody", 1, &spawned);
    if (call == SEND)
        case_signal(tid, START);
    if (call == SELF)
        case_signal(pvm_mytid(), ASK);
    if (call == BARRIER)
        pvm_barrier("poll", 2);
}

int main(int argc, char **argv)
{
    int tid, rounds = order_rounds(5), call, r, slept;
    char bell;
    case_begin();
    if (argc > 1 && !strcmp(order_role(argv[1]), "hello")) {
        case_signal(pvm_parent(), FIRST);
        pvm_exit();
        return 0;
    }
    if (argc > 1)
        return strcmp(argv[1], "nobody") ? answerer() : 0;
    pvm_mytid();
    for (r = slept = 0; r < rounds; r++) {
        case_spawn_here("hello", 1, &tid);
        slept += !wakes(2000) && pvm_probe(tid, FIRST) > 0;
        order_await(tid, FIRST);
    }
    printf("the first message of a child: slept: %d\n", slept);
    order_hang_bell();
    order_spawn("answerer", 1, &tid);
    pvm_joingroup("poll");
    order_await(tid, DONE);
    for (call = 0; call < CALLS; call++) {
        for (r = slept = 0; r < rounds; r++) {
            order_send(tid, GO, call);
            if (read(order_bell, &bell, 1) != 1)
                return 1;
            make(call, tid);
            slept += !wakes(200);
            order_await(tid, SECOND);
            if (call == SELF)
                order_await(pvm_mytid(), ASK);
        }
        printf("%s in between: slept: %d\n", calls[call], slept);
    }
    for (r = slept = 0; r < rounds; r++) {
        case_signal(pvm_mytid(), ASK);
        slept += !wakes(200);
        order_await(pvm_mytid(), ASK);
    }
    printf("only a message to oneself: slept: %d\n", slept);
    order_send(tid, STOP, 0);
    order_unpipe(ORDER_BELL);
    pvm_lvgroup("poll");
    pvm_exit();
    return 0;
}
