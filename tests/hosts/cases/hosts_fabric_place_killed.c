/* Tasks die while long messages go over the fabric straight to their places: the sender while its peer waits for the rest, and
 * the receiver while its peer has lent memory. Whoever lives goes on, with whole messages only, and uses the fabric with the
 * next task. */
//@ ours-only D3: skip
//@ daemon-env PVM_FABRIC=tcp
//@ daemon-env PVM_TRUSTED_NET=1
//@ timeout 120
#include "fabric.h"
#include <sys/time.h>

#define BYTES (3 << 20)
#define ROUNDS 6

enum { BEGIN = PONG + 1, BODY, ARRIVED, EXIT };

static char body[BYTES];

/* Sends or receives until a signal kills this task, some ms after the first message has arrived. */
static void child(int is_sender)
{
    int parent = pvm_parent(), tag, ms, number;
    do {
        pvm_bufinfo(pvm_recv(parent, -1), NULL, &tag, NULL);
        pvm_upkint(&ms, 1, 1);
        say(parent, PONG, 0);
    } while (tag != BEGIN);
    for (number = 0;; number++) {
        memset(body, number, sizeof body);
        if (is_sender)
            pvm_psend(parent, BODY, body, sizeof body, PVM_BYTE);
        else
            pvm_precv(parent, BODY, body, sizeof body, PVM_BYTE, NULL, NULL, NULL);
        if (number == 0 && is_sender)
            pvm_recv(parent, ARRIVED);
        if (number == 0)
            setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, ms * 1000}}, NULL);
    }
}

/* Returns whether all bytes of the body are this number. */
static int is_whole(int number)
{
    size_t i;
    for (i = 0; i < sizeof body; i++)
        if (body[i] != (char)number)
            return 0;
    return 1;
}

/* Receives from a task until it has died. Returns how many bodies were wrong, or -1 if none came. */
static int receive_all(int tid)
{
    int number, from, tag, bytes, wrong = 0;
    for (number = 0;; number++) {
        pvm_precv(-1, -1, body, sizeof body, PVM_BYTE, &from, &tag, &bytes);
        if (tag == EXIT)
            return number > 0 ? wrong : -1;
        if (tag == PONG) {
            number--;
            continue;
        }
        if (number == 0)
            say(tid, ARRIVED, 0);
        wrong += from != tid || tag != BODY || bytes != BYTES || !is_whole(number);
    }
}

/* Sends to a task until it has died. */
static int send_all(int tid)
{
    int number, wrong = 0;
    for (number = 0; pvm_nrecv(-1, EXIT) <= 0; number++) {
        memset(body, number, sizeof body);
        pvm_psend(tid, BODY, body, sizeof body, PVM_BYTE);
        wrong += !is_whole(number);
    }
    return number > 0 ? wrong : -1;
}

int main(int argc, char **argv)
{
    int tid, round, bad = 0, unlinked = 0;
    case_begin();
    pvm_mytid();
    if (argc > 1)
        child(strcmp(argv[1], "sender") == 0);
    srand(7);
    for (round = 0; round < ROUNDS; round++) {
        tid = spawn_on("bravo", round % 2 ? "sender" : "receiver");
        pvm_notify(PvmTaskExit, EXIT, 1, &tid);
        unlinked += settle(tid) != 1;
        say(tid, BEGIN, 20 + rand() % 150);
        bad += (round % 2 ? receive_all(tid) : send_all(tid)) != 0;
    }
    printf("rounds without the fabric: %d, with wrong messages: %d\n", unlinked, bad);
    pvm_exit();
    return 0;
}
