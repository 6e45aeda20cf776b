/* Up to 16 tasks on up to three hosts send to one receiver, one after another, each because of a message of the one before
 * it. The receiver gets their messages in this order, whatever their sizes, ways of sending, and ways of receiving.
 * No message goes from one host to another if the receiver is on a third one: on that way PVM keeps no order. */
#include "order.h"

#define SENDERS 16
#define HOSTS 3
#define WORDS_MAX (1 << 18)

/* The words at the start of a message: the state of the draw, the number of the message, and the number of those to come. */
enum { DRAW, STEP, LEFT, HEAD };

static int words[WORDS_MAX];
/* The first senders take part; each is on the host that has its number modulo that of the hosts. */
static int senders[SENDERS], hosts, receiver;

/* Returns a number below `limit`, and goes on in the draw. */
static int draw(int limit)
{
    words[DRAW] = (int)(((unsigned)words[DRAW] * 1103515245u + 12345u) & 0x7fffffff);
    return (words[DRAW] >> 8) % limit;
}

/* Returns how many words the next message has. */
static int drawn_length(void)
{
    static const int lengths[] = {4, 100, 126, 1024, 4095, 8000, 16384};
    return draw(40) == 0 ? WORDS_MAX : lengths[draw(sizeof lengths / sizeof *lengths)];
}

/* Returns who sends after this one: anybody to whom a message comes after what was sent to the receiver. */
static int drawn_next(int mine, int count)
{
    int next;
    do
        next = draw(count);
    while (next % hosts != mine % hosts && next % hosts != 0 && mine % hosts != 0);
    return next;
}

/* Sends the message to the receiver, and then makes the next task send. */
static void send_on(int mine, int count)
{
    static const int encodings[] = {PvmDataDefault, PvmDataRaw, PvmDataInPlace};
    int length = drawn_length(), way = draw(5), next = drawn_next(mine, count), both[2];
    both[0] = receiver;
    both[1] = senders[next];
    if (way == 3) {
        pvm_psend(receiver, SECOND, words, length, PVM_INT);
    } else {
        pvm_initsend(encodings[way % 3]);
        pvm_pkint(words, length, 1);
        if (way == 4 && words[LEFT] > 0 && next != mine) {
            pvm_mcast(both, 2, SECOND);
            return;
        }
        pvm_send(receiver, SECOND);
    }
    if (words[LEFT] == 0)
        return;
    pvm_initsend(PvmDataRaw);
    pvm_pkint(words, HEAD, 1);
    pvm_send(senders[next], SECOND);
}

/* A task that sends each time it receives a message. */
static int sender(void)
{
    int mine, count = SENDERS, tag;
    pvm_recv(pvm_parent(), START);
    pvm_upkint(senders, SENDERS, 1);
    pvm_upkint(&receiver, 1, 1);
    pvm_upkint(&hosts, 1, 1);
    for (mine = 0; senders[mine] != pvm_mytid(); mine++)
        ;
    for (;;) {
        tag = order_next();
        if (tag == STOP)
            break;
        if (tag == ASK) {
            count = order_value();
            case_signal(pvm_parent(), DONE);
            continue;
        }
        pvm_upkint(words, HEAD, 1);
        if (tag == SECOND) {
            words[STEP]++;
            words[LEFT]--;
        }
        send_on(mine, count);
    }
    pvm_exit();
    return 0;
}

/* Receives the next message by one of several calls. */
static int next_by(int call)
{
    struct timeval limit = {30, 0};
    int buffer = 0;
    if (call == 0)
        return pvm_recv(-1, -1);
    if (call == 1)
        return pvm_trecv(-1, -1, &limit);
    if (call == 2) {
        while ((buffer = pvm_nrecv(-1, -1)) == 0)
            ;
        return buffer;
    }
    while (pvm_probe(-1, -1) == 0)
        ;
    return pvm_recv(-1, -1);
}

/* Receives the messages of a round. Returns whether one came too early. */
static int is_round_wrong(int round)
{
    int step = 0, left, wrong = 0;
    do {
        next_by((round + step) % 4);
        pvm_upkint(words, HEAD, 1);
        wrong |= words[STEP] != step;
        left = words[STEP] + words[LEFT] - step;
        step++;
    } while (left > 0);
    return wrong;
}

int main(int argc, char **argv)
{
    char *role[] = {"sender", NULL};
    struct pvmhostinfo *all;
    int i, count, r, wrong, here = 0, rounds = order_rounds(100);
    case_begin();
    if (argc > 1)
        return sender();
    receiver = pvm_mytid();
    pvm_config(&hosts, NULL, &all);
    while (all[here].hi_tid != pvm_tidtohost(receiver))
        here++;
    for (i = 0; i < SENDERS; i++) {
        int host = (here + i % (hosts < HOSTS ? hosts : HOSTS)) % hosts;
        pvm_spawn(case_path(), role, PvmTaskHost, all[host].hi_name, 1, &senders[i]);
    }
    hosts = hosts < HOSTS ? hosts : HOSTS;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(senders, SENDERS, 1);
    pvm_pkint(&receiver, 1, 1);
    pvm_pkint(&hosts, 1, 1);
    pvm_mcast(senders, SENDERS, START);
    for (count = 2; count <= SENDERS; count *= 2) {
        order_tell(SENDERS, senders, ASK, count);
        for (i = 0; i < SENDERS; i++)
            order_await(senders[i], DONE);
        wrong = 0;
        for (r = 0; r < rounds; r++) {
            words[DRAW] = r * 16 + count;
            words[STEP] = 0;
            words[LEFT] = count - 1;
            pvm_initsend(PvmDataRaw);
            pvm_pkint(words, HEAD, 1);
            pvm_send(senders[draw(count)], GO);
            wrong += is_round_wrong(r);
        }
        printf("%d senders: out of order: %d\n", count, wrong);
    }
    order_tell(SENDERS, senders, STOP, 0);
    pvm_exit();
    return 0;
}
