/* Cause before effect in traffic of all with all. Each message says how many messages each task had sent to each other,
 * as far as its sender knew; whoever receives it must have received all those that were sent to it. */
#include "order.h"

#define MOST 16
enum { ONE = 20, ALL, LAST };

static int tids[MOST], count, me;
static int sent[MOST][MOST];  /* [from][to] */
static int received[MOST];

/* Sends to one task, or to all others. */
static void send(int to, int tag)
{
    int i;
    pvm_initsend(PvmDataRaw);
    for (i = 0; i < count; i++)
        pvm_pkint(sent[i], count, 1);
    if (tag == ONE)
        pvm_send(tids[to], tag);
    else
        pvm_mcast(tids, count, tag);
    for (i = 0; i < count; i++)
        sent[me][i] += i != me && (tag != ONE || i == to);
}

/* Looks at the message that was received, and returns how many messages it should have come after. */
static int take(int tag)
{
    int from, i, k, row[MOST], tid, wrong = 0;
    pvm_bufinfo(pvm_getrbuf(), NULL, NULL, &tid);
    for (from = 0; tids[from] != tid; from++)
        ;
    for (i = 0; i < count; i++) {
        pvm_upkint(row, count, 1);
        wrong += row[me] > received[i] ? row[me] - received[i] : 0;
        for (k = 0; k < count; k++) {
            if (i == from && k != from)
                row[k] += tag != ONE || k == me;
            if (sent[i][k] < row[k])
                sent[i][k] = row[k];
        }
    }
    received[from]++;
    return wrong;
}

static int task(char *number)
{
    int value, r, last = 0, tag, wrong = 0, parent = pvm_parent();
    unsigned random;
    count = atoi(number);
    me = order_started(count, tids, &value);
    random = me;
    for (r = 0; r < value; r++) {
        random = random * 1103515245u + 12345u;
        if (random >> 16 & 7)
            send((me + 1 + (random >> 20) % (count - 1)) % count, ONE);
        else
            send(me, ALL);
        while (pvm_nrecv(-1, -1) > 0) {
            pvm_bufinfo(pvm_getrbuf(), NULL, &tag, NULL);
            last += tag == LAST;
            wrong += take(tag);
        }
    }
    send(me, LAST);
    while (last < count - 1) {
        tag = order_next();
        last += tag == LAST;
        wrong += take(tag);
    }
    order_send(parent, ASK, wrong);
    pvm_recv(parent, STOP);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int rounds = order_rounds(200), number, all[MOST];
    char word[20];
    case_begin();
    if (argc > 1)
        return task(argv[1]);
    pvm_mytid();
    for (number = 2; number <= MOST; number *= 2) {
        sprintf(word, "%d", number);
        case_spawn_here(word, number, all);
        order_start(number, all, rounds);
        printf("%d tasks: out of order: %d\n", number, order_sum(number, all, ASK));
        order_tell(number, all, STOP, 0);
    }
    pvm_exit();
    return 0;
}
