/* A program that calls pvm_nrecv before it waits in poll() for the descriptors of pvm_getfds sleeps through no message,
 * whatever calls it made in between. */
#include "order.h"
#include <poll.h>

#define FDS_MAX 64
enum { NOTHING, CONFIG, STATE, SPAWN, SEND, SELF, BARRIER, CALLS };
static const char *calls[] = {"nothing", "pvm_config", "pvm_pstat", "pvm_spawn", "pvm_send", "a message to oneself",
                              "pvm_barrier"};

/* Waits until a message may have arrived; returns whether the time was up before. */
static int sleeps(void)
{
    struct pollfd list[FDS_MAX];
    int *fds, count = pvm_getfds(&fds), i;
    for (i = 0; i < count && i < FDS_MAX; i++)
        list[i] = (struct pollfd){fds[i], POLLIN, 0};
    return poll(list, i, 2000) == 0;
}

/* Receives a message, and returns whether the program slept although it was there. */
static int await(int tid, int tag)
{
    int slept = 0;
    while (pvm_nrecv(tid, tag) == 0)
        slept = sleeps();
    return slept;
}

static int child(char *role)
{
    int parent = pvm_parent(), tag;
    if (!strcmp(role, "hello")) {
        case_signal(parent, FIRST);
    } else {
        pvm_joingroup("poll");
        case_signal(parent, DONE);
        while ((tag = order_next()) != STOP) {
            case_signal(parent, SECOND);
            if (order_value() == BARRIER)
                pvm_barrier("poll", 2);
        }
        pvm_lvgroup("poll");
    }
    pvm_exit();
    return 0;
}

/* Makes a call that may take in the message for which the program waits. */
static void make(int call, int tid)
{
    struct pvmhostinfo *hosts;
    int count, spawned;
    if (call == CONFIG)
        pvm_config(&count, NULL, &hosts);
    if (call == STATE)
        pvm_pstat(tid);
    if (call == SPAWN && case_spawn_here("hello", 1, &spawned) == 1)
        pvm_recv(spawned, FIRST);
    if (call == SEND)
        order_send(tid, GO, NOTHING);
    if (call == SELF)
        case_signal(pvm_mytid(), ASK);
    if (call == BARRIER)
        pvm_barrier("poll", 2);
}

int main(int argc, char **argv)
{
    int tid, rounds = order_rounds(40), call, r, slept;
    case_begin();
    if (argc > 1)
        return child(argv[1]);
    pvm_mytid();
    for (r = slept = 0; r < rounds; r++) {
        case_spawn_here("hello", 1, &tid);
        slept += await(tid, FIRST);
    }
    printf("the first message of a child: slept: %d\n", slept);
    case_spawn_here("answers", 1, &tid);
    pvm_joingroup("poll");
    order_await(tid, DONE);
    for (call = 0; call < CALLS; call++) {
        for (r = slept = 0; r < rounds; r++) {
            order_send(tid, GO, call);
            make(call, tid);
            slept += await(tid, SECOND);
            if (call == SELF)
                pvm_recv(pvm_mytid(), ASK);
            if (call == SEND)
                order_await(tid, SECOND);
        }
        printf("%s in between: slept: %d\n", calls[call], slept);
    }
    for (r = slept = 0; r < rounds; r++) {
        case_signal(pvm_mytid(), ASK);
        slept += await(-1, ASK);
    }
    printf("only a message to oneself: slept: %d\n", slept);
    order_send(tid, STOP, 0);
    pvm_lvgroup("poll");
    pvm_exit();
    return 0;
}
