/* Tasks on all hosts exchange messages while hosts and tasks are lost, and account for every message.
 *   faults ROUTE LONGEST HOST...
 * is the chief: it starts two workers on each host. Every worker sends numbered messages of random
 * sizes to every other one, checks number, order and content of those that it receives, and counts
 * the notifications of lost tasks and hosts. The chief reads commands, one on each line: `settle` (stop
 * sending; all accounts must agree; then continue), `end`. It prints `running`, `exit N`, `lost TID`,
 * `added TID`, `settled dead=N,N lost=TID,TID fabric=N messages=N`, `error TEXT`,
 * `ended`. `fabric` is the sum over all workers of the tasks of other hosts that their messages reach on a fabric.
 */
#include "hosts.h"
#include <fcntl.h>
#include <poll.h>

#define PvmFabricTasks 1006
#define HOSTS_MAX 16
#define WORKERS_A_HOST 2
#define WORKERS_MAX (HOSTS_MAX * WORKERS_A_HOST)
/* The most numbers in a worker's account. */
#define ACCOUNT_WORDS (3 * WORKERS_MAX + HOSTS_MAX + 1)
/* The most messages to one task that the task has not acknowledged yet. */
#define WINDOW 24
/* The seconds between two messages of a worker: short, so that many messages are in flight, but long enough for
 * all other work. */
#define PACE 0.004
/* The number of messages after whose arrival a task sends an acknowledgement. */
#define TELL 6

enum { SETUP = 1, DATA, TOLD, ORDER, ACCOUNT, EXPECT, RIGHT, TASK_ENDED, HOST_LOST, HOST_ADDED };
enum { STOP = 1, GO, END };

struct peer {
    int tid, sent, told, received, untold, ends;
};

static struct {
    int me, count, hosts, longest;
    struct peer peers[WORKERS_MAX];
    int host[HOSTS_MAX], lost[HOSTS_MAX];
    int talking, chief;
    double bytes;
    char error[300];
} here;

static char *bytes;

static void wrong(const char *what, int first, int second, int third)
{
    if (!here.error[0])
        snprintf(here.error, sizeof here.error, "worker %d: %s (%d, %d, %d)", here.me, what, first, second, third);
}

static int index_of(int tid)
{
    for (int i = 0; i < here.count; i++)
        if (here.peers[i].tid == tid)
            return i;
    return -1;
}

static char byte_at(int from, int number, int place)
{
    return (char)(from * 31 + number * 7 + place * 3 + (place >> 8));
}

static void tell(int to)
{
    here.peers[to].untold = 0;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&here.me, 1, 1);
    pvm_pkint(&here.peers[to].received, 1, 1);
    pvm_send(here.peers[to].tid, TOLD);
}

static int random_size(void)
{
    int kind = rand() % 100;
    return kind < 70 ? rand() % 1000 : kind < 95 ? rand() % 40000 : rand() % here.longest;
}

/* Returns whether a message may be sent to a worker now. */
static int may_send(int to)
{
    struct peer *peer = &here.peers[to];
    return to != here.me && !peer->ends && peer->sent - peer->told < WINDOW;
}

/* Packs a message. It holds, for each worker, the number that the message has for this worker. */
static void pack(int seed, int size, const int *numbers)
{
    for (int i = 0; i < size; i++)
        bytes[i] = byte_at(here.me, seed, i);
    pvm_initsend(rand() % 2 ? PvmDataDefault : PvmDataRaw);
    pvm_pkint(&here.me, 1, 1);
    pvm_pkint(&seed, 1, 1);
    pvm_pkint(&size, 1, 1);
    pvm_pkint((int *)numbers, here.count, 1);
    pvm_pkbyte(bytes, size, 1);
}

/* Sends a message to one worker, or to all that can take one. */
static void send_some(int to)
{
    int numbers[WORKERS_MAX], tids[WORKERS_MAX], count = 0, is_multicast = rand() % 8 == 0;
    int size = random_size(), seed = rand() % 1000;
    for (int i = 0; i < here.count; i++) {
        numbers[i] = here.peers[i].sent;
        if (is_multicast && may_send(i))
            tids[count++] = here.peers[i].tid;
    }
    if (is_multicast && size > here.longest / 4)
        size /= 4; /* the same bytes go to all */
    pack(seed, size, numbers);
    int result;
    if (is_multicast) {
        pvm_setopt(PvmMcastRoute, rand() % (PvmMcastBroadcast + 1));
        result = pvm_mcast(tids, count, DATA);
    } else {
        result = pvm_send(here.peers[to].tid, DATA);
    }
    if (result < 0)
        wrong("pvm_send or pvm_mcast", result, to, numbers[to]);
    for (int i = 0; i < here.count; i++)
        here.peers[i].sent += is_multicast ? may_send(i) : i == to;
}

static void take_data(int source)
{
    int from, seed, size, numbers[WORKERS_MAX], number;
    pvm_upkint(&from, 1, 1);
    pvm_upkint(&seed, 1, 1);
    pvm_upkint(&size, 1, 1);
    pvm_upkint(numbers, here.count, 1);
    number = numbers[here.me];
    if (from < 0 || from >= here.count || here.peers[from].tid != source || size < 0 || size > here.longest) {
        wrong("a strange message", from, number, size);
        return;
    }
    struct peer *peer = &here.peers[from];
    if (number != peer->received)
        wrong("out of order: from, number, awaited", from, number, peer->received);
    if (peer->ends)
        wrong("a message after its sender's end", from, number, peer->ends);
    if (pvm_upkbyte(bytes, size, 1) < 0)
        wrong("pvm_upkbyte", from, number, size);
    for (int i = 0; i < size; i++) {
        if (bytes[i] != byte_at(from, seed, i)) {
            wrong("wrong content", from, number, i);
            break;
        }
    }
    peer->received = number + 1;
    here.bytes += size;
    if (++peer->untold >= TELL)
        tell(from);
}

static void report(void)
{
    int words[ACCOUNT_WORDS], n = 0;
    for (int i = 0; i < here.count; i++) {
        words[n++] = here.peers[i].sent;
        words[n++] = here.peers[i].received;
        words[n++] = here.peers[i].ends;
    }
    for (int i = 0; i < here.hosts; i++)
        words[n++] = here.lost[i];
    words[n++] = pvm_getopt(PvmFabricTasks);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&here.me, 1, 1);
    pvm_pkint(words, n, 1);
    pvm_pkstr(here.error);
    pvm_send(here.chief, ACCOUNT);
}

/* Returns whether a worker has received all notifications, and all messages of the living tasks. */
static int is_complete(int *sent, int *dead, int *lost)
{
    for (int i = 0; i < here.count; i++) {
        if (dead[i] && here.peers[i].ends == 0 && i != here.me)
            return 0;
        if (!dead[i] && i != here.me && here.peers[i].received != sent[i])
            return 0;
    }
    for (int i = 0; i < here.hosts; i++)
        if (lost[i] && here.lost[i] == 0)
            return 0;
    return 1;
}

static void note(int tag)
{
    int value = 0;
    pvm_upkint(&value, 1, 1);
    if (tag == TASK_ENDED) {
        int who = index_of(value);
        if (who < 0)
            wrong("an end of a stranger", value, 0, 0);
        else
            here.peers[who].ends++;
    } else {
        for (int i = 0; i < here.hosts; i++)
            here.lost[i] += here.host[i] == value;
    }
}

static int expecting, sent_to_me[WORKERS_MAX], dead[WORKERS_MAX], lost[HOSTS_MAX];
static double patience_end;

static double seconds(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return now.tv_sec + now.tv_usec * 1e-6;
}

/* Handles one message. Returns 0 if the worker must end. */
static int handle(int message)
{
    int tag, source, order, from, told;
    double patience;
    pvm_bufinfo(message, NULL, &tag, &source);
    switch (tag) {
    case DATA: take_data(source); break;
    case TOLD:
        pvm_upkint(&from, 1, 1);
        pvm_upkint(&told, 1, 1);
        if (from >= 0 && from < here.count && told > here.peers[from].told)
            here.peers[from].told = told;
        break;
    case TASK_ENDED:
    case HOST_LOST: note(tag); break;
    case ORDER:
        pvm_upkint(&order, 1, 1);
        if (order == END)
            return 0;
        here.talking = order == GO;
        if (order == STOP)
            report();
        break;
    case EXPECT:
        pvm_upkint(sent_to_me, here.count, 1);
        pvm_upkint(dead, here.count, 1);
        pvm_upkint(lost, here.hosts, 1);
        pvm_upkdouble(&patience, 1, 1);
        expecting = 1;
        patience_end = seconds() + patience;
        break;
    default: wrong("a strange tag", tag, source, 0);
    }
    return 1;
}

static void setup(void)
{
    int tids[WORKERS_MAX], route;
    pvm_recv(here.chief, SETUP);
    pvm_upkint(&here.me, 1, 1);
    pvm_upkint(&here.count, 1, 1);
    pvm_upkint(&here.hosts, 1, 1);
    pvm_upkint(&here.longest, 1, 1);
    pvm_upkint(&route, 1, 1);
    pvm_upkint(tids, here.count, 1);
    pvm_upkint(here.host, here.hosts, 1);
    for (int i = 0; i < here.count; i++)
        here.peers[i].tid = tids[i];
    pvm_setopt(PvmRoute, route);
    for (int i = 0; i < here.count; i++)
        if (i != here.me)
            pvm_notify(PvmTaskExit, TASK_ENDED, 1, &tids[i]);
    pvm_notify(PvmHostDelete, HOST_LOST, here.hosts, here.host);
    bytes = malloc(here.longest + 1);
    srand(here.me + here.longest);
    here.talking = 1;
}

static void worker(void)
{
    struct timeval pause = {0, 1000};
    double next = 0;
    here.chief = pvm_parent();
    setup();
    for (;;) {
        int message = pvm_trecv(-1, -1, &pause);
        /* Without a daemon there is nothing left to do. */
        if (message < 0 || (message > 0 && !handle(message)))
            break;
        int to = rand() % here.count;
        if (here.talking && seconds() >= next && may_send(to)) {
            send_some(to);
            next = seconds() + PACE;
        }
        int complete = expecting && is_complete(sent_to_me, dead, lost);
        if (complete || (expecting && seconds() > patience_end)) {
            expecting = 0;
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&here.me, 1, 1);
            pvm_pkint(&complete, 1, 1);
            pvm_send(here.chief, RIGHT);
            report();
        }
    }
    pvm_exit();
}

/* ---- The chief ---- */

static struct {
    int tids[WORKERS_MAX], ends[WORKERS_MAX], count, hosts, host[HOSTS_MAX], lost[HOSTS_MAX];
    int sent[WORKERS_MAX][WORKERS_MAX], received[WORKERS_MAX][WORKERS_MAX], seen[WORKERS_MAX][WORKERS_MAX];
    int host_seen[WORKERS_MAX][HOSTS_MAX], fabric[WORKERS_MAX];
} all;

static int failed;

static void error(const char *what, int first, int second, int third)
{
    if (!failed)
        printf("error %s (%d, %d, %d)\n", what, first, second, third);
    failed = 1;
}

static void heard(int message)
{
    int tag, value = 0, i;
    pvm_bufinfo(message, NULL, &tag, NULL);
    pvm_upkint(&value, 1, 1);
    if (tag == TASK_ENDED) {
        for (i = 0; i < all.count; i++) {
            if (all.tids[i] == value) {
                all.ends[i]++;
                printf("exit %d\n", i);
            }
        }
    } else if (tag == HOST_LOST) {
        for (i = 0; i < all.hosts; i++)
            all.lost[i] += all.host[i] == value;
        printf("lost %x\n", value);
    } else if (tag == HOST_ADDED) {
        for (i = 0; i < value; i++) {
            int tid = 0;
            pvm_upkint(&tid, 1, 1);
            printf("added %x\n", tid);
        }
    }
}

/* Handles the notifications of the chief. */
static void hear_all(void)
{
    int message;
    for (int tag = TASK_ENDED; tag <= HOST_ADDED; tag++) {
        while ((message = pvm_nrecv(-1, tag)) > 0)
            heard(message);
        /* The daemon has ended. */
        if (message < 0)
            exit(1);
    }
}

static void order_all(int order)
{
    for (int i = 0; i < all.count; i++) {
        if (all.ends[i])
            continue;
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&order, 1, 1);
        pvm_send(all.tids[i], ORDER);
    }
}

/* Waits for the accounts of all living workers. */
static int accounts(double patience)
{
    int have[WORKERS_MAX] = {0}, words[ACCOUNT_WORDS], i, who, missing;
    char text[300];
    double end = seconds() + patience;
    do {
        hear_all();
        while (case_receive(-1, ACCOUNT, 0.02) > 0) {
            pvm_upkint(&who, 1, 1);
            pvm_upkint(words, 3 * all.count + all.hosts + 1, 1);
            pvm_upkstr(text);
            if (text[0]) {
                if (!failed)
                    printf("error %s\n", text);
                failed = 1;
            }
            for (i = 0; i < all.count; i++) {
                all.sent[who][i] = words[3 * i];
                all.received[who][i] = words[3 * i + 1];
                all.seen[who][i] = words[3 * i + 2];
            }
            for (i = 0; i < all.hosts; i++)
                all.host_seen[who][i] = words[3 * all.count + i];
            all.fabric[who] = words[3 * all.count + all.hosts];
            have[who] = 1;
        }
        for (missing = -1, i = 0; i < all.count; i++)
            if (!have[i] && !all.ends[i])
                missing = i;
    } while (missing >= 0 && seconds() < end);
    if (missing >= 0)
        error("hang: no account of a worker", missing, 0, 0);
    return missing < 0;
}

/* Sends each worker the numbers of messages that the others have sent to it, and waits until it has received
 * them all. */
static void complete(double patience)
{
    int i, k, sent[WORKERS_MAX], dead_now[WORKERS_MAX], who, well;
    for (i = 0; i < all.count; i++)
        dead_now[i] = all.ends[i] > 0;
    for (i = 0; i < all.count; i++) {
        if (dead_now[i])
            continue;
        for (k = 0; k < all.count; k++)
            sent[k] = all.sent[k][i];
        pvm_initsend(PvmDataDefault);
        pvm_pkint(sent, all.count, 1);
        pvm_pkint(dead_now, all.count, 1);
        pvm_pkint(all.lost, all.hosts, 1);
        pvm_pkdouble(&patience, 1, 1);
        pvm_send(all.tids[i], EXPECT);
    }
    if (!accounts(patience + 10))
        return;
    for (i = 0; i < all.count; i++) {
        if (dead_now[i])
            continue;
        if (case_receive(all.tids[i], RIGHT, 5) <= 0) {
            error("no verdict of a worker", i, 0, 0);
            continue;
        }
        pvm_upkint(&who, 1, 1);
        pvm_upkint(&well, 1, 1);
        for (k = 0; !well && k < all.count; k++) {
            if (!dead_now[k] && k != i && all.received[i][k] != all.sent[k][i])
                error("lost messages: to, from, how many", i, k, all.sent[k][i] - all.received[i][k]);
            if (dead_now[k] && all.seen[i][k] == 0)
                error("not told of an end: who, of whom", i, k, 0);
        }
        if (!well)
            error("not told of a lost host", i, 0, 0);
    }
}

/* Checks that every worker was notified once of each dead task and each lost host, and of nothing else. */
static void compare(void)
{
    for (int i = 0; i < all.count; i++) {
        if (all.ends[i] > 1)
            error("the chief was told of an end more than once", i, all.ends[i], 0);
        for (int k = 0; !all.ends[i] && k < all.count; k++)
            if (k != i && all.seen[i][k] != all.ends[k])
                error("ends that a worker saw: who, of whom, how often", i, k, all.seen[i][k]);
        for (int k = 0; !all.ends[i] && k < all.hosts; k++)
            if (all.host_seen[i][k] != all.lost[k])
                error("lost hosts that a worker saw: who, which, how often", i, k, all.host_seen[i][k]);
    }
    for (int k = 0; k < all.hosts; k++)
        if (all.lost[k] > 1)
            error("the chief was told of a lost host more than once", k, all.lost[k], 0);
}

static void settle(void)
{
    double messages = 0;
    int i, k, comma = 0, fabric = 0;
    order_all(STOP);
    if (!accounts(60))
        return;
    complete(40);
    hear_all();
    compare();
    if (failed)
        return;
    printf("settled dead=");
    for (i = 0; i < all.count; i++)
        if (all.ends[i])
            printf("%s%d", comma++ ? "," : "", i);
    printf(" lost=");
    for (comma = i = 0; i < all.hosts; i++)
        if (all.lost[i])
            printf("%s%x", comma++ ? "," : "", all.host[i]);
    /* PVM 3.4 does not know the option. */
    for (i = 0; i < all.count; i++)
        if (!all.ends[i] && all.fabric[i] > 0)
            fabric += all.fabric[i];
    for (i = 0; i < all.count; i++)
        for (k = 0; k < all.count; k++)
            messages += all.ends[i] ? 0 : all.received[i][k];
    printf(" fabric=%d messages=%.0f\n", fabric, messages);
    order_all(GO);
}

static void start(int route, int longest, int hosts, char **names)
{
    char *arguments[] = {"worker", NULL};
    all.hosts = hosts;
    for (int i = 0; i < hosts; i++) {
        all.host[i] = host_tid(names[i]);
        int count = pvm_spawn(case_path(), arguments, PvmTaskHost, names[i], WORKERS_A_HOST, all.tids + all.count);
        if (count != WORKERS_A_HOST) {
            printf("error cannot spawn on %s (%d)\n", names[i], all.tids[all.count]);
            exit(1);
        }
        all.count += count;
    }
    pvm_notify(PvmTaskExit, TASK_ENDED, all.count, all.tids);
    pvm_notify(PvmHostDelete, HOST_LOST, all.hosts, all.host);
    pvm_notify(PvmHostAdd, HOST_ADDED, -1, NULL);
    for (int i = 0; i < all.count; i++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&i, 1, 1);
        pvm_pkint(&all.count, 1, 1);
        pvm_pkint(&all.hosts, 1, 1);
        pvm_pkint(&longest, 1, 1);
        pvm_pkint(&route, 1, 1);
        pvm_pkint(all.tids, all.count, 1);
        pvm_pkint(all.host, all.hosts, 1);
        pvm_send(all.tids[i], SETUP);
    }
    printf("running\n");
}

int main(int argc, char **argv)
{
    char line[100];
    case_begin();
    setvbuf(stdin, NULL, _IONBF, 0);
    if (argc == 2) {
        worker();
        return 0;
    }
    if (argc < 4 || argc - 3 > HOSTS_MAX || pvm_mytid() < 0)
        return 1;
    start(atoi(argv[1]), atoi(argv[2]), argc - 3, argv + 3);
    for (;;) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        hear_all();
        if (poll(&input, 1, 5) <= 0)
            continue;
        if (!fgets(line, sizeof line, stdin))
            return 1;
        if (strcmp(line, "settle\n") == 0) {
            settle();
        } else if (strcmp(line, "end\n") == 0) {
            order_all(END);
            printf("ended\n");
            pvm_exit();
            return 0;
        }
    }
}
