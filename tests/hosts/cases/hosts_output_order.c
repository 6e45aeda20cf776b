/* A task prints lines and sends messages in turn to a collector that is busy meanwhile. The collector gets both in the
 * order in which the task made them, from a task of its own host and from a task of another host. */
#include "hosts.h"

#define OUTPUT 77
#define MESSAGE 78
#define ROUNDS 4

/* The time after which the daemon has certainly read a line. */
#define PAUSE 100000

static void child(void)
{
    int round;
    pvm_recv(pvm_parent(), MESSAGE);
    for (round = 1; round <= ROUNDS; round++) {
        printf("line %d\n", round);
        fflush(stdout);
        usleep(PAUSE);
        pvm_psend(pvm_parent(), MESSAGE, &round, 1, PVM_INT);
        usleep(PAUSE);
    }
    pvm_exit();
}

/* Receives everything about the child's output, and its messages, and shows them in the order of their arrival. */
static void collect(const char *host)
{
    int tid = spawn_on(host, "child"), ended = 0, messages = 0;
    printf("%s: %d\n", host, tid > 0);
    pvm_psend(tid, MESSAGE, &tid, 1, PVM_INT);
    usleep(2 * (ROUNDS + 1) * PAUSE);
    while (!ended || messages < ROUNDS) {
        int tag, source, bytes, number;
        char text[100];
        struct timeval patience = {(long)PATIENCE, 0};
        int message = pvm_trecv(-1, -1, &patience);
        if (message <= 0) {
            printf("nothing arrived: %d\n", message);
            return;
        }
        pvm_bufinfo(message, &bytes, &tag, &source);
        pvm_upkint(&number, 1, 1);
        if (tag == MESSAGE) {
            messages++;
            printf("message %d\n", number);
            continue;
        }
        pvm_upkint(&bytes, 1, 1);
        ended |= bytes == 0;
        if (bytes > 0) {
            pvm_upkbyte(text, bytes, 1);
            printf("%.*s", bytes, text);
        }
    }
}

int main(int argc, char **argv)
{
    case_begin();
    (void)argv;
    if (argc > 1) {
        child();
        return 0;
    }
    pvm_setopt(PvmOutputTid, pvm_mytid());
    pvm_setopt(PvmOutputCode, OUTPUT);
    collect("alfa");
    collect("bravo");
    pvm_exit();
    return 0;
}
