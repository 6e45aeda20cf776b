/* A message comes before its effects, by whatever call B receives. A sends 1 to B, and then causes C to send 2 to B,
 * with the same tag. */
#include "order.h"

#define RELAYED 2 /* what C sends */
static const char *calls[] = {"pvm_recv(-1, -1)", "pvm_recv(-1, tag)", "pvm_nrecv", "pvm_trecv", "pvm_precv",
                              "pvm_probe",        "pvm_recvf",         "two tasks"};
enum { ANY, TAG, NRECV, TRECV, PRECV, PROBE, RECVF, NAMED, CALLS };

static int matches(int message, int tid, int tag)
{
    int found = -1;
    pvm_bufinfo(message, NULL, &found, NULL);
    (void)tid;
    return tag < 0 || found == tag;
}

/* Receives the next message by a call, and returns its value. */
static int take(int call, int from)
{
    struct timeval second = {1, 0};
    int value = -1;
    switch (call) {
    case ANY:
        pvm_recv(-1, -1);
        break;
    case TAG:
    case RECVF:
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
    case PROBE:
        while (pvm_probe(-1, FIRST) == 0)
            ;
        pvm_recv(-1, FIRST);
        break;
    default: /* C's message is waited for; then A's is there */
        pvm_recv(from, FIRST);
        return pvm_nrecv(pvm_parent(), FIRST) > 0 ? order_value() : RELAYED;
    }
    return order_value();
}

static int receiver(void)
{
    int parent = pvm_parent(), words[3], r, wrong;
    for (;;) {
        pvm_recv(parent, START);
        pvm_upkint(words, 3, 1);
        if (words[0] == CALLS)
            break;
        if (words[0] == RECVF)
            pvm_recvf(matches);
        for (r = wrong = 0; r < words[1]; r++) {
            int value = take(words[0], words[2]);
            wrong += value == RELAYED;
            if (words[0] != NAMED || value == RELAYED)
                pvm_recv(-1, FIRST);
            case_signal(parent, DONE);
        }
        pvm_recvf(NULL);
        order_send(parent, ASK, wrong);
    }
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int b, c, words[3] = {0, order_rounds(150), 0}, r;
    case_begin();
    if (argc > 1)
        return strcmp(argv[1], "relay") ? receiver() : order_relay();
    pvm_mytid();
    case_spawn_here("receiver", 1, &b);
    case_spawn_here("relay", 1, &c);
    words[2] = c;
    order_lead(c, b, FIRST);
    for (words[0] = 0; words[0] <= CALLS; words[0]++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(words, 3, 1);
        pvm_send(b, START);
        if (words[0] == CALLS)
            break;
        for (r = 0; r < words[1]; r++) {
            order_send(b, FIRST, 1);
            order_send(c, GO, RELAYED);
            order_await(b, DONE);
        }
        order_await(b, ASK);
        printf("%s: out of order: %d\n", calls[words[0]], order_value());
    }
    order_send(c, STOP, 0);
    pvm_exit();
    return 0;
}
