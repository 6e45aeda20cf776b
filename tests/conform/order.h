/* Helpers of the cases about messages of several senders, which are received in the order in which they were sent.
 * In most of them a task A sends FIRST to a receiver B, and then causes C to send SECOND to B. */
#ifndef ORDER_H
#define ORDER_H

#include "case.h"
#include <fcntl.h>
#include <sys/stat.h>

/* Tags. */
enum { START = 1, FIRST, GO, SECOND, DONE, ASK, STOP };

/* How long an answer may take, in seconds, before the case gives up. */
#define ORDER_PATIENCE 10.0
/* The number of the pipe that is a bell. */
#define ORDER_BELL 100

/* Returns the number of rounds: that of ORDER_ROUNDS, or `count`. */
static int order_rounds(int count)
{
    const char *given = getenv("ORDER_ROUNDS");
    return given ? atoi(given) : count;
}

/* Sends an integer. */
static int order_send(int tid, int tag, int value)
{
    pvm_initsend(PvmDataRaw);
    pvm_pkint(&value, 1, 1);
    return pvm_send(tid, tag);
}

/* Unpacks the next integer of the message that was received. */
static int order_value(void)
{
    int value = -1;
    pvm_upkint(&value, 1, 1);
    return value;
}

/* Receives the next message, whatever it is, and returns its tag. */
static int order_next(void)
{
    int tag = -1;
    pvm_bufinfo(pvm_recv(-1, -1), NULL, &tag, NULL);
    return tag;
}

/* Waits for an answer; without one, the case ends. */
static void order_await(int tid, int tag)
{
    if (case_receive(tid, tag, ORDER_PATIENCE) > 0)
        return;
    printf("no message %d\n", tag);
    pvm_exit();
    exit(1);
}

/* Sends one message to each of these tasks. */
static void order_tell(int count, int *tids, int tag, int value)
{
    int i;
    for (i = 0; i < count; i++)
        order_send(tids[i], tag, value);
}

/* Sends these tasks all their tids, and then `value`. */
static void order_start(int count, int *tids, int value)
{
    int i;
    for (i = 0; i < count; i++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(tids, count, 1);
        pvm_pkint(&value, 1, 1);
        pvm_send(tids[i], START);
    }
}

/* Receives what order_start sent. Returns the place of this task among `tids`. */
static int order_started(int count, int *tids, int *value)
{
    int i;
    pvm_recv(pvm_parent(), START);
    pvm_upkint(tids, count, 1);
    *value = order_value();
    for (i = 0; i < count - 1 && tids[i] != pvm_mytid(); i++)
        ;
    return i;
}

/* Returns the sum of the counts that these tasks send. */
static int order_sum(int count, int *tids, int tag)
{
    int i, sum = 0;
    for (i = 0; i < count; i++) {
        order_await(tids[i], tag);
        sum += order_value();
    }
    return sum;
}

/* Opens a pipe, by which tasks on one host tell each other something that PVM does not see. The tasks of one parent
 * number their pipes. */
static int order_pipe(int parent, int number, int make)
{
    char path[4096];
    int pipe;
    snprintf(path, sizeof path, "%s/order.%x.%d", pvmgettmp(), parent, number);
    if (make)
        mkfifo(path, 0600);
    pipe = open(path, O_RDWR | O_CLOEXEC);
    if (pipe < 0)
        printf("no pipe: %s\n", strerror(errno));
    return pipe;
}

/* Removes a pipe that this task has made. */
static void order_unpipe(int number)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/order.%x.%d", pvmgettmp(), pvm_mytid(), number);
    unlink(path);
}

/* Waits until the daemon has taken over everything that this task has sent: it answers after that. */
static void order_settle(void)
{
    pvm_pstat(pvm_mytid());
}

/* The bell, a pipe by which B is told that SECOND has been sent; -1: B does not wait for it before it receives. */
static int order_bell = -1;

/* Makes the bell for the tasks that order_spawn spawns from now on. */
static void order_hang_bell(void)
{
    order_bell = order_pipe(pvm_mytid(), ORDER_BELL, 1);
}

/* Spawns this program as `role` on this host. */
static int order_spawn(char *role, int count, int *tids)
{
    char word[40];
    snprintf(word, sizeof word, "%s%s", order_bell >= 0 ? "late " : "", role);
    return case_spawn_here(word, count, tids);
}

/* Returns the name of another host; of this one if it is the only one. */
static char *order_elsewhere(void)
{
    struct pvmhostinfo *hosts;
    int count = 0, i, here = pvm_tidtohost(pvm_mytid());
    pvm_config(&count, NULL, &hosts);
    for (i = 0; i < count - 1 && hosts[i].hi_tid == here; i++)
        ;
    return hosts[i].hi_name;
}

/* Returns the name of a mailbox or group for one round. */
static char *order_name(int way, int round)
{
    static char name[40];
    sprintf(name, "order %d %d", way, round);
    return name;
}

/* Puts an entry into a mailbox. */
static void order_put(char *name)
{
    int one = 1;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&one, 1, 1);
    pvm_putinfo(name, pvm_getsbuf(), PvmMboxDefault);
}

/* Returns the role of a task that order_spawn spawned. */
static char *order_role(char *word)
{
    if (strncmp(word, "late ", 5) != 0)
        return word;
    order_bell = order_pipe(pvm_parent(), ORDER_BELL, 0);
    return word + 5;
}

/* Rings the bell if there is one. */
static void order_ring(void)
{
    if (order_bell < 0)
        return;
    order_settle();
    if (write(order_bell, "!", 1) != 1)
        printf("no bell: %s\n", strerror(errno));
}

/* The receiver B. In each round it gets one message FIRST and one SECOND, and then sends DONE to its parent. It counts
 * the rounds in which SECOND came first. */
static int order_receiver(void)
{
    int parent = pvm_parent(), wrong = 0, tag;
    char bell;
    for (;;) {
        if (order_bell >= 0 && read(order_bell, &bell, 1) != 1)
            return 1;
        tag = order_next();
        if (tag == STOP)
            break;
        if (tag == ASK) {
            order_send(parent, ASK, wrong);
            wrong = 0;
            continue;
        }
        wrong += tag != FIRST;
        order_next();
        case_signal(parent, DONE);
    }
    pvm_exit();
    return 0;
}

/* Prints what the receiver B has counted since the last call. */
static void order_print(int receiver, const char *what)
{
    case_signal(receiver, ASK);
    order_ring();
    order_await(receiver, ASK);
    printf("%s%s: out of order: %d\n", what, order_bell >= 0 ? ", B receives later" : "", order_value());
}

/* Ends the receiver B. */
static void order_end(int receiver)
{
    case_signal(receiver, STOP);
    order_ring();
}

/* A task C, which answers each message GO by a message to another task. */
static int order_relay(void)
{
    int next[2] = {0, 0}, tag;
    while ((tag = order_next()) != STOP) {
        if (tag == START) {
            pvm_upkint(next, 2, 1);
            continue;
        }
        order_send(next[0], next[1], order_value());
        if (next[1] == SECOND)
            order_ring();
    }
    pvm_exit();
    return 0;
}

/* Tells a relay to which task, and with which tag, it sends. */
static void order_lead(int relay, int to, int tag)
{
    int next[2] = {to, tag};
    pvm_initsend(PvmDataDefault);
    pvm_pkint(next, 2, 1);
    pvm_send(relay, START);
}

#endif
