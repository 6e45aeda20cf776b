/* A call that does not wait handles at most one new message. So a program that polls in turn for the second
 * message of a pair and for the first one always receives the first one first. */
//@ timeout 60
#include "case.h"

#define ROUNDS 3000
#define TAG_A 1
#define TAG_B 2
#define TAG_H 3
#define TAG_GO 10

static int handled, received, early;

/* Sends many pairs, some of them directly after one another. */
static void send_pairs(int parent, int second)
{
    int round, pause;
    for (round = 0; round < ROUNDS; round++) {
        pvm_initsend(PvmDataRaw);
        pvm_pkint(&round, 1, 1);
        pvm_send(parent, TAG_A);
        pvm_send(parent, second);
        for (pause = 0; round % 3 == 0 && pause < 200; pause++)
            getppid();
    }
}

static int child(char *role)
{
    int parent = pvm_parent();
    if (strcmp(role, "direct") == 0)
        pvm_setopt(PvmRoute, PvmRouteDirect);
    for (;;) {
        int what;
        pvm_recv(parent, TAG_GO);
        pvm_upkint(&what, 1, 1);
        if (what < 0)
            break;
        if (what == TAG_GO) {
            case_signal(parent, TAG_A);
            case_signal(parent, TAG_B);
            case_signal(parent, TAG_H);
        } else {
            send_pairs(parent, what);
        }
    }
    pvm_exit();
    return 0;
}

static void go(int tid, int what)
{
    pvm_initsend(PvmDataRaw);
    pvm_pkint(&what, 1, 1);
    pvm_send(tid, TAG_GO);
}

static int by_nrecv(int tag)
{
    return pvm_nrecv(-1, tag) > 0;
}

static int by_probe(int tag)
{
    return pvm_probe(-1, tag) > 0 && pvm_recv(-1, tag) > 0;
}

static int any(int mid, int tid, int tag)
{
    int bytes, found_tag, found_tid;
    pvm_bufinfo(mid, &bytes, &found_tag, &found_tid);
    return (tid == -1 || tid == found_tid) && tag == found_tag;
}

/* Counts how often the second message is found although the first one is not. */
static void poll_pairs(const char *how, int tid, int (*take)(int))
{
    int first = 0, second = 0, wrong = 0;
    go(tid, TAG_B);
    while (second < ROUNDS) {
        if (take(TAG_B)) {
            second++;
            wrong += first < second;
        }
        first += take(TAG_A);
    }
    /* With a direct link, PVM 3.4.6 fails once in many thousand pairs. */
    printf("%s: %s\n", how, wrong <= ROUNDS / 1000 ? "in order" : "not in order");
    while (first < ROUNDS)
        first += take(TAG_A);
}

static int handle(int mid)
{
    (void)mid;
    handled++;
    early += received < handled;
    return 0;
}

static void poll_with_handler(int tid)
{
    int handler = pvm_addmhf(-1, TAG_B, -1, handle);
    handled = received = early = 0;
    go(tid, TAG_B);
    while (handled < ROUNDS)
        received += pvm_nrecv(-1, TAG_A) > 0;
    printf("a handler: %s\n", early <= ROUNDS / 1000 ? "in order" : "not in order");
    while (received < ROUNDS)
        received += pvm_nrecv(-1, TAG_A) > 0;
    pvm_delmhf(handler);
}

/* A call that finds a queued message does not handle new messages. */
static void queue_first(int tid)
{
    int handler = pvm_addmhf(-1, TAG_H, -1, handle);
    handled = 0;
    go(tid, TAG_GO);
    SHOW_SIGN(case_receive(tid, TAG_B, 5.0));
    SHOW(handled);
    usleep(100000);
    SHOW_SIGN(pvm_nrecv(tid, TAG_A));
    SHOW(handled);
    while (!handled)
        pvm_nrecv(tid, TAG_A);
    SHOW(handled);
    pvm_delmhf(handler);
}

int main(int argc, char **argv)
{
    int tid, route;
    case_begin();
    if (argc > 1)
        return child(argv[1]);
    pvm_mytid();
    pvm_setopt(PvmAutoErr, 0);
    for (route = 0; route < 2; route++) {
        printf(route ? "direct\n" : "default\n");
        if (route)
            pvm_setopt(PvmRoute, PvmRouteDirect);
        if (case_spawn(route ? "direct" : "default", 1, &tid) != 1)
            return 1;
        poll_pairs("nrecv", tid, by_nrecv);
        poll_pairs("probe", tid, by_probe);
        pvm_recvf(any);
        poll_pairs("recvf", tid, by_nrecv);
        pvm_recvf(NULL);
        poll_with_handler(tid);
        queue_first(tid);
        go(tid, -1);
        case_gone(tid);
    }
    pvm_exit();
    return 0;
}
