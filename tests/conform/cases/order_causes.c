/* A sends a message to B, and then does something else that C learns of; C, which is on B's host, sends SECOND to B: B receives
 * the message of A first. A is on another host if there are several. And what was sent to a task before a barrier is there
 * after it. */
#include "order.h"
#include <signal.h>

#define LONG_BYTES 300000

enum { SIGNAL, BARRIER, JOIN, MAILBOX, DELETED, SPAWN, CAUSES };
static const char *causes[] = {"a signal", "a barrier", "pvm_joingroup", "an entry", "an entry is deleted", "pvm_spawn"};

static char *there; /* the host of B and C */

static int spawn_there(char *role, char *word, int *tid)
{
    char *arguments[] = {role, word, NULL};
    return pvm_spawn(case_path(), arguments, PvmTaskHost, there, 1, tid);
}

static void send_first(int b, int round)
{
    static char bytes[LONG_BYTES];
    pvm_initsend(PvmDataRaw);
    pvm_pkbyte(bytes, round % 2 ? LONG_BYTES : 8, 1);
    pvm_send(b, FIRST);
}

/* C: waits for the cause of each round, and sends SECOND. */
static int watcher(void)
{
    int tids[2], rounds, cause, r, number, missing = 0;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    order_started(2, tids, &rounds);
    pvm_setopt(PvmAutoErr, 0); /* there may be no entry, and no group */
    pvm_joingroup("pair");
    order_send(pvm_parent(), START, 0);
    for (cause = 0; cause < SPAWN; cause++) {
        for (r = 0; r < rounds; r++) {
            char *name = order_name(cause, r);
            if (cause == SIGNAL)
                sigwait(&set, &number);
            else if (cause == BARRIER)
                pvm_barrier("pair", 2);
            else if (cause == JOIN)
                while (pvm_gettid(name, 0) < 0)
                    ;
            else if (cause == MAILBOX)
                pvm_recvinfo(name, 0, PvmMboxWaitForInfo);
            else {
                pvm_recvinfo(name, 0, PvmMboxWaitForInfo);
                case_signal(pvm_parent(), GO);
                while (pvm_recvinfo(name, 0, PvmMboxDefault) > 0)
                    ;
            }
            case_signal(tids[0], SECOND);
        }
    }
    for (r = 0; r < rounds; r++) {
        pvm_barrier("pair", 2);
        missing += pvm_nrecv(pvm_parent(), FIRST) <= 0;
        case_signal(pvm_parent(), DONE);
    }
    order_send(pvm_parent(), ASK, missing);
    pvm_lvgroup("pair");
    pvm_exit();
    return 0;
}

static void run(int cause, int rounds, int b, int c)
{
    int r;
    for (r = 0; r < rounds; r++) {
        char *name = order_name(cause, r), word[20];
        if (cause == DELETED) {
            order_put(name);
            order_await(c, GO);
        }
        send_first(b, r);
        sprintf(word, "%d", b);
        if (cause == SIGNAL)
            pvm_sendsig(c, SIGUSR1);
        else if (cause == BARRIER)
            pvm_barrier("pair", 2);
        else if (cause == JOIN)
            pvm_joingroup(name);
        else if (cause == MAILBOX)
            order_put(name);
        else if (cause == DELETED)
            pvm_delinfo(name, 0, PvmMboxDefault);
        else
            spawn_there("child", word, NULL);
        order_await(b, DONE);
        if (cause == JOIN)
            pvm_lvgroup(name);
        if (cause == MAILBOX)
            pvm_delinfo(name, 0, PvmMboxDefault);
    }
    order_print(b, causes[cause]);
}

int main(int argc, char **argv)
{
    int tids[2], rounds = order_rounds(20), cause, r;
    case_begin();
    if (argc > 2 && strcmp(argv[1], "child") == 0) {
        pvm_mytid();
        case_signal(atoi(argv[2]), SECOND);
        pvm_exit();
        return 0;
    }
    if (argc > 1)
        return strcmp(argv[1], "watcher") ? order_receiver() : watcher();
    there = order_elsewhere();
    pvm_joingroup("pair");
    spawn_there("receiver", NULL, &tids[0]);
    spawn_there("watcher", NULL, &tids[1]);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(tids, 2, 1);
    pvm_pkint(&rounds, 1, 1);
    pvm_send(tids[1], START);
    order_await(tids[1], START);
    for (cause = 0; cause < CAUSES; cause++)
        run(cause, rounds, tids[0], tids[1]);
    for (r = 0; r < rounds; r++) {
        send_first(tids[1], r);
        pvm_barrier("pair", 2);
        order_await(tids[1], DONE);
    }
    printf("before a barrier: missing after it: %d\n", order_sum(1, &tids[1], ASK));
    order_end(tids[0]);
    pvm_lvgroup("pair");
    pvm_exit();
    return 0;
}
