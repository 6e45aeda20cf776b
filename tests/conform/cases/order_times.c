/* A message that had been sent before another one was is received before it, by the clock of the host, although their
 * senders know nothing of each other. */
#include "order.h"

#define SENDERS 4
#define MARGIN 2000 /* ns */

/* Whether a message counts as sent when pvm_send returns, or only when the daemon has it. */
#ifndef SENT_WHEN_SENT
#define SENT_WHEN_SENT 0
#endif

struct times {
    long before;
    long after; /* 0: unknown */
};

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Sends messages with the time before each, and the time after the one before it. */
static int sender(void)
{
    int parent = pvm_parent(), tids[SENDERS], rounds, r;
    long times[2] = {0, 0};
    order_started(SENDERS, tids, &rounds);
    for (r = 0; r <= rounds; r++) {
        times[0] = now();
        pvm_initsend(PvmDataRaw);
        pvm_pklong(times, 2, 1);
        pvm_send(parent, FIRST);
        if (!SENT_WHEN_SENT)
            order_settle();
        times[1] = now();
        if (r % (SENDERS + 3) == 0)
            usleep(50); /* so that another sender has its turn */
    }
    pvm_recv(parent, STOP);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int tids[SENDERS], last[SENDERS], rounds = order_rounds(600), count = SENDERS * (rounds + 1);
    int i, from, tid, wrong = 0;
    long times[2], latest = 0;
    struct times *seen;
    case_begin();
    if (argc > 1)
        return sender();
    pvm_mytid();
    case_spawn_here("sender", SENDERS, tids);
    order_start(SENDERS, tids, rounds);
    seen = calloc(count, sizeof *seen);
    for (i = 0; i < SENDERS; i++)
        last[i] = -1;
    for (i = 0; i < count; i++) {
        pvm_bufinfo(pvm_recv(-1, FIRST), NULL, NULL, &tid);
        pvm_upklong(times, 2, 1);
        for (from = 0; tids[from] != tid; from++)
            ;
        seen[i].before = times[0];
        if (last[from] >= 0)
            seen[last[from]].after = times[1];
        last[from] = i;
    }
    for (i = 0; i < count; i++) {
        wrong += seen[i].after && seen[i].after + MARGIN < latest;
        if (seen[i].before > latest)
            latest = seen[i].before;
    }
    printf("out of order: %d\n", wrong);
    order_tell(SENDERS, tids, STOP, 0);
    pvm_exit();
    return 0;
}
