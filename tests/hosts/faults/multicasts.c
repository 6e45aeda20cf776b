/* Tasks on all hosts receive multicasts while hosts are killed, leave and join, and datagrams are lost.
 *   multicasts COUNT SEED [HOST|-last]
 * is the chief: it starts a sender on each of the first two hosts of the table (with `-last`, of the last two), which must
 * stay, and a receiver on every host, also on those that are added later. The senders together multicast COUNT messages of 1 B to 1 MiB by all
 * ways. Each receiver checks that the messages of each sender arrive once, in order and unchanged, from the first that
 * was sent to it up to the last. Nothing is expected from the receivers on HOST. The chief prints `running`, `joined TID`, `gone TID`, `error TEXT`, and at the end
 * `settled receivers=N messages=N`.
 */
#include "hosts.h"

#define SENDERS 2
#define RECEIVERS_MAX 4096
#define BYTES_MAX (1 << 20)
/* The most multicasts that a receiver has not acknowledged. */
#define WINDOW 48
/* The number of messages after whose arrival a receiver sends an acknowledgement. */
#define TELL 8
/* More than the number of any message. */
#define NEVER (1 << 30)
/* The seconds within which something must happen. */
#define LIMIT 60.0

enum { SETUP = 1, JOIN, BEGIN, DATA, TOLD, LAST, REPORT, DONE, FINISH, GONE, ADDED };

static unsigned char bytes[BYTES_MAX], wanted[BYTES_MAX];

/* Fills a body that depends on the sender and the number of a message. */
static void fill(unsigned char *body, int size, int sender, int number)
{
    unsigned value = (unsigned)sender * 2654435761u + (unsigned)number * 40503u + 1;
    for (int i = 0; i < size; i++) {
        value = value * 1664525u + 1013904223u;
        body[i] = (unsigned char)(value >> 24);
    }
}

static int random_size(void)
{
    int most = 1 << (rand() % 21);
    return 1 + rand() % most;
}

/* ----- a sender */

static struct {
    int tids[RECEIVERS_MAX], told[RECEIVERS_MAX], count;
} to;

static void send_numbers(int tid, int tag, int first, int second)
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&first, 1, 1);
    pvm_pkint(&second, 1, 1);
    pvm_send(tid, tag);
}

static void send_number(int tid, int tag, int number)
{
    send_numbers(tid, tag, number, 0);
}

/* Handles a message to a sender. `number` is that of its next multicast, `last` whether there will be no other. */
static void served(int message, int number, int last)
{
    int size, tag, from, tid, is_silent, i;
    pvm_bufinfo(message, &size, &tag, &from);
    if (tag == FINISH) {
        pvm_exit();
        exit(0);
    }
    if (tag != TOLD && tag != JOIN && tag != GONE)
        return;
    pvm_upkint(&tid, 1, 1);
    if (tag == TOLD) {
        for (i = 0; i < to.count; i++)
            if (to.tids[i] == from)
                to.told[i] = tid;
    } else if (tag == JOIN && to.count < RECEIVERS_MAX) {
        pvm_upkint(&is_silent, 1, 1);
        to.tids[to.count] = tid;
        to.told[to.count++] = is_silent ? NEVER : number - 1;
        pvm_notify(PvmTaskExit, GONE, 1, &tid);
        send_number(tid, BEGIN, number);
        if (last)
            send_number(tid, LAST, number);
    } else if (tag == GONE) {
        for (i = 0; i < to.count && to.tids[i] != tid; i++)
            ;
        if (i < to.count) {
            to.tids[i] = to.tids[--to.count];
            to.told[i] = to.told[to.count];
        }
    }
}

static int least_told(void)
{
    int least = NEVER;
    for (int i = 0; i < to.count; i++)
        if (to.told[i] < least)
            least = to.told[i];
    return least;
}

static int sender(void)
{
    int count, seed, number, message, chief = pvm_parent();
    if (case_receive(chief, SETUP, LIMIT) <= 0)
        return 1;
    pvm_upkint(&count, 1, 1);
    pvm_upkint(&seed, 1, 1);
    srand((unsigned)seed);
    for (number = 1; number <= count; number++) {
        while ((message = pvm_nrecv(-1, -1)) > 0)
            served(message, number, 0);
        while (to.count == 0 || number - least_told() > WINDOW) {
            if ((message = case_receive(-1, -1, LIMIT)) <= 0) {
                pvm_initsend(PvmDataDefault);
                pvm_pkstr("a sender gets no acknowledgement");
                pvm_send(chief, REPORT);
                return 1;
            }
            served(message, number, 0);
        }
        int size = random_size();
        fill(bytes, size, pvm_mytid(), number);
        pvm_setopt(PvmMcastRoute, rand() % (PvmMcastBroadcast + 1));
        pvm_initsend(rand() % 2 ? PvmDataRaw : PvmDataInPlace);
        pvm_pkint(&number, 1, 1);
        pvm_pkint(&size, 1, 1);
        pvm_pkbyte((char *)bytes, size, 1);
        pvm_mcast(to.tids, to.count, DATA);
    }
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&number, 1, 1);
    pvm_mcast(to.tids, to.count, LAST);
    case_signal(chief, DONE);
    while ((message = pvm_recv(-1, -1)) > 0)
        served(message, number, 1);
    return 1;
}

/* ----- a receiver */

static void complain(const char *what, int from, int first, int second)
{
    char text[200];
    snprintf(text, sizeof text, "t%x: %s of t%x (%d, %d)", pvm_mytid(), what, from, first, second);
    pvm_initsend(PvmDataDefault);
    pvm_pkstr(text);
    pvm_send(pvm_parent(), REPORT);
}

static int receiver(void)
{
    int tids[SENDERS] = {0}, next[SENDERS], ended = 0, messages = 0, message;
    while ((message = pvm_recv(-1, -1)) > 0) {
        int length, tag, from, number, size, who;
        pvm_bufinfo(message, &length, &tag, &from);
        if (tag == FINISH)
            break;
        for (who = 0; who < SENDERS && tids[who] != from && tids[who]; who++)
            ;
        pvm_upkint(&number, 1, 1);
        if (who == SENDERS) {
            complain("a message of a third sender", from, tag, number);
        } else if (tag == BEGIN) {
            tids[who] = from;
            next[who] = number;
        } else if (!tids[who] || next[who] != number) {
            complain("another message was to come", from, number, tids[who] ? next[who] : 0);
            next[who] = number + 1;
        } else if (tag == DATA) {
            pvm_upkint(&size, 1, 1);
            if (size < 1 || size > BYTES_MAX || pvm_upkbyte((char *)bytes, size, 1) < 0) {
                complain("a message of a wrong length", from, number, size);
                continue;
            }
            fill(wanted, size, from, number);
            if (memcmp(bytes, wanted, (size_t)size))
                complain("a changed message", from, number, size);
            next[who]++;
            messages++;
            if (number % TELL == 0)
                send_number(from, TOLD, number);
        } else if (tag == LAST && ++ended == SENDERS) {
            pvm_initsend(PvmDataDefault);
            pvm_pkstr("");
            pvm_pkint(&messages, 1, 1);
            pvm_send(pvm_parent(), REPORT);
        }
    }
    pvm_exit();
    return 0;
}

/* ----- the chief */

static struct {
    int senders[SENDERS], tids[RECEIVERS_MAX], is_gone[RECEIVERS_MAX], is_done[RECEIVERS_MAX], count;
} all;

/* The host with silent receivers, or NULL. */
static const char *silent;

static void add_receiver(const char *host)
{
    int tid = spawn_on(host, "receiver"), is_silent = silent && strcmp(host, silent) == 0, i;
    /* The host may be lost already. */
    if (tid < 0 || all.count == RECEIVERS_MAX)
        return;
    all.is_done[all.count] = is_silent;
    all.tids[all.count++] = tid;
    pvm_notify(PvmTaskExit, GONE, 1, &tid);
    for (i = 0; i < SENDERS; i++)
        send_numbers(all.senders[i], JOIN, tid, is_silent);
    printf("joined %x\n", tid);
}

static int lacks_a_report(void)
{
    for (int i = 0; i < all.count; i++)
        if (!all.is_gone[i] && !all.is_done[i])
            return 1;
    return 0;
}

static int chief(int count, int seed, int is_last)
{
    struct pvmhostinfo *hosts;
    int host_count, i, done = 0, messages = 0, receivers = 0, message;
    pvm_mytid();
    pvm_notify(PvmHostAdd, ADDED, -1, NULL);
    pvm_config(&host_count, NULL, &hosts);
    for (i = 0; i < SENDERS; i++) {
        int words[2] = {count / SENDERS, seed * SENDERS + i};
        all.senders[i] = spawn_on(hosts[is_last ? host_count - 1 - i : i].hi_name, "sender");
        if (all.senders[i] < 0)
            return 1;
        pvm_notify(PvmTaskExit, GONE, 1, &all.senders[i]);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(words, 2, 1);
        pvm_send(all.senders[i], SETUP);
    }
    for (i = 0; i < host_count; i++)
        add_receiver(hosts[i].hi_name);
    printf("running\n");
    while (done < SENDERS || lacks_a_report()) {
        int length, tag, from, tid, number;
        if ((message = case_receive(-1, -1, 2 * LIMIT)) <= 0) {
            printf("error nothing happens any more: %d senders are done\n", done);
            return 1;
        }
        pvm_bufinfo(message, &length, &tag, &from);
        if (tag == DONE) {
            done++;
        } else if (tag == GONE) {
            pvm_upkint(&tid, 1, 1);
            for (i = 0; i < all.count; i++)
                all.is_gone[i] |= all.tids[i] == tid;
            for (i = 0; i < SENDERS; i++)
                if (all.senders[i] == tid) {
                    printf("error a sender is gone: t%x\n", tid);
                    return 1;
                }
            printf("gone %x\n", tid);
        } else if (tag == ADDED) {
            pvm_upkint(&number, 1, 1);
            while (number-- > 0) {
                pvm_upkint(&tid, 1, 1);
                pvm_config(&host_count, NULL, &hosts);
                for (i = 0; i < host_count; i++)
                    if (hosts[i].hi_tid == tid)
                        add_receiver(hosts[i].hi_name);
            }
        } else if (tag == REPORT) {
            char text[300];
            pvm_upkstr(text);
            if (text[0]) {
                printf("error %s\n", text);
                return 1;
            }
            pvm_upkint(&number, 1, 1);
            messages += number;
            receivers++;
            for (i = 0; i < all.count; i++)
                all.is_done[i] |= all.tids[i] == from;
        }
    }
    printf("settled receivers=%d messages=%d\n", receivers, messages);
    for (i = 0; i < SENDERS; i++)
        case_signal(all.senders[i], FINISH);
    for (i = 0; i < all.count; i++)
        case_signal(all.tids[i], FINISH);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    case_begin();
    if (argc == 2 && strcmp(argv[1], "sender") == 0)
        return sender();
    if (argc == 2 && strcmp(argv[1], "receiver") == 0)
        return receiver();
    int is_last = argc == 4 && strcmp(argv[3], "-last") == 0;
    silent = argc == 4 && !is_last ? argv[3] : NULL;
    return argc >= 3 ? chief(atoi(argv[1]), atoi(argv[2]), is_last) : 2;
}
