/* The first host of the machine is deleted by a task of another one, and the next master's host too, while tasks exchange
 * messages by both routes, meet in barriers, use mailboxes, and ask about hosts and tasks. What is not on these hosts goes
 * on, and nothing is lost or comes twice. Both hosts come back under other numbers. */
//@ fresh
//@ ours-only the loss of its first host ends a machine of PVM: skip
//@ timeout 120
#include "numbered.h"
#include "hosts.h"

#define GROUP "first leaves"
#define LAME "lame"
#define KEPT "kept"
#define LATER "later"
#define WORKERS_MAX 7
/* The workers of the first two hosts, which are deleted, have the highest numbers. */
#define HOST_OF(worker) (names[worker == 6 ? 0 : worker >= 4 ? 1 : 2 + worker / 2])
/* How many rounds pass before and after each event. */
#define ROUNDS 20
#define FRESH_TASKS 6
/* Together longer than what may wait for a host. */
#define LONG_ENTRIES 9
#define LONG_BYTES (8 << 20)

enum { JOINED = 1, GO, ROUND, PROGRESS, ORDER, FLOOD, REPORT, LAMED, FOUND, FRESH, INSTANCE, ENDED, LOST, ADDED };
/* What the chief orders, by worker 0: to go on with fewer workers, or to end. */
enum { NOTHING, FEWER, END };

static const char *const names[] = {"alfa", "bravo", "charlie", "delta"};
static const int workers_after[] = {WORKERS_MAX, 6, 4};

/* ---- The workers ---- */

static int tids[WORKERS_MAX], number, workers = WORKERS_MAX, flood[WORKERS_MAX];

static char *box_of(int worker)
{
    static char name[30];
    sprintf(name, "box %d", worker);
    return name;
}

static void put(char *box, int value, int flags, int *well)
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    *well &= pvm_putinfo(box, pvm_getsbuf(), flags) == 0;
}

static int get(char *box, int flags)
{
    int value = -1, message = pvm_recvinfo(box, 0, flags);
    if (message > 0) {
        pvm_setrbuf(message);
        pvm_upkint(&value, 1, 1);
        pvm_freebuf(message);
    }
    return value;
}

/* Half of the workers have direct links. All lengths occur between each two of them. */
static void send_round(int to, int round)
{
    pvm_setopt(PvmRoute, number % 2 ? PvmRouteDirect : PvmDontRoute);
    send_numbered(tids[to], ROUND, round, (round * 7919 + number * 613 + to * 977) % 40000);
}

/* Takes what the workers send that have left the group. */
static void take_flood(int *well)
{
    int value, source, i;
    while (pvm_nrecv(-1, FLOOD) > 0) {
        pvm_bufinfo(pvm_getrbuf(), NULL, NULL, &source);
        pvm_upkint(&value, 1, 1);
        for (i = 0; i < WORKERS_MAX; i++)
            if (tids[i] == source)
                *well &= value == flood[i]++;
    }
}

/* Sends to worker 0 until the end of the host. */
static void send_for_ever(void)
{
    int value;
    for (value = 0;; value++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&value, 1, 1);
        if (pvm_send(tids[0], FLOOD) < 0)
            exit(0);
        usleep(3000);
    }
}

static int instances_stay(void)
{
    int i, stay = 1;
    for (i = 0; i < workers; i++)
        stay &= pvm_gettid(GROUP, i) == tids[i] && pvm_getinst(GROUP, tids[i]) == i;
    return stay;
}

/* One round: returns the order of worker 0. */
static int do_round(int round, int *well)
{
    int order = NOTHING, i, from = (number + 1) % workers;
    if (number == 0 && pvm_nrecv(pvm_parent(), ORDER) > 0)
        pvm_upkint(&order, 1, 1);
    put(box_of(number), round, PvmMboxDefault, well);
    for (i = 0; i < workers; i++)
        if (i != number)
            send_round(i, round);
    for (i = 0; i < workers; i++)
        if (i != number)
            *well &= case_receive(tids[i], ROUND, PATIENCE) > 0 && is_numbered(round);
    *well &= pvm_barrier(GROUP, workers) == 0;
    *well &= get(box_of(from), PvmMboxDefault) == round;
    *well &= instances_stay();
    take_flood(well);
    /* The order of worker 0 is in its own mailbox, so that all have it in the same round. */
    if (number == 0)
        put("order", order, PvmMboxDefault, well);
    *well &= pvm_barrier(GROUP, workers) == 0;
    order = get("order", PvmMboxDefault);
    *well &= pvm_barrier(GROUP, workers) == 0;
    return order;
}

static void work(void)
{
    int round = 0, well = 1, order, progress[2], i, left = 0;
    number = pvm_joingroup(GROUP);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&number, 1, 1);
    pvm_send(pvm_parent(), JOINED);
    pvm_recv(pvm_parent(), GO);
    pvm_upkint(tids, WORKERS_MAX, 1);
    if (number == WORKERS_MAX - 1) {
        put(KEPT, number, PvmMboxPersistent, &well);
        put("own", number, PvmMboxDefault, &well);
    }
    do {
        order = do_round(round++, &well);
        if (order == FEWER)
            workers = workers_after[++left];
        if (number >= workers) {
            pvm_lvgroup(GROUP);
            if (!well)
                exit(1);
            send_for_ever();
        }
        if (number == 0) {
            progress[0] = progress[1] = workers;
            for (i = workers; i < WORKERS_MAX; i++)
                progress[1] += flood[i] > 0;
            pvm_initsend(PvmDataDefault);
            pvm_pkint(progress, 2, 1);
            pvm_send(pvm_parent(), PROGRESS);
        }
    } while (order != END && well);
    well &= pvm_nrecv(-1, ROUND) == 0;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&well, 1, 1);
    pvm_send(pvm_parent(), REPORT);
}

/* ---- Other tasks ---- */

/* Waits in a barrier for a member that is lost. */
static void be_lame(void)
{
    int result;
    pvm_joingroup(LAME);
    case_signal(pvm_parent(), JOINED);
    pvm_recv(pvm_parent(), GO);
    result = pvm_barrier(LAME, 3);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&result, 1, 1);
    pvm_send(pvm_parent(), LAMED);
}

/* Waits for an entry that comes later. */
static void look(void)
{
    int found;
    case_signal(pvm_parent(), JOINED);
    found = get(LATER, PvmMboxWaitForInfo);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&found, 1, 1);
    pvm_send(pvm_parent(), FOUND);
}

/* Joins for a moment. */
static void join(void)
{
    int instance = pvm_joingroup(GROUP);
    pvm_lvgroup(GROUP);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&instance, 1, 1);
    pvm_send(pvm_parent(), INSTANCE);
}

/* ---- The chief ---- */

static void order(int what)
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&what, 1, 1);
    pvm_send(tids[0], ORDER);
}

/* Waits for rounds of this number of workers, in which those that have left the group were heard, too. */
static int rounds_of(int count)
{
    int rounds = 0, found[2];
    while (rounds < ROUNDS && case_receive(tids[0], PROGRESS, 2 * PATIENCE) > 0) {
        pvm_upkint(found, 2, 1);
        rounds += found[0] == count && found[1] == WORKERS_MAX;
    }
    return rounds;
}

/* Starts tasks where the machine likes. Returns how many of them are on hosts of the machine. */
static int start_fresh_tasks(void)
{
    struct pvmhostinfo *hosts;
    int fresh[FRESH_TASKS], count, i, k, placed = 0;
    char *arguments[] = {"fresh", NULL};
    pvm_spawn(case_path(), arguments, PvmTaskDefault, "", FRESH_TASKS, fresh);
    pvm_config(&count, NULL, &hosts);
    for (i = 0; i < FRESH_TASKS; i++) {
        int is_there = fresh[i] > 0 && case_receive(fresh[i], FRESH, PATIENCE) > 0;
        for (k = 0; k < count; k++)
            placed += is_there && pvm_tidtohost(fresh[i]) == hosts[k].hi_tid;
    }
    return placed;
}

/* Returns which number a task on the host gets in the group. */
static int next_instance(char *host)
{
    return received_number(spawn_on(host, "join"), INSTANCE);
}

/* Puts long entries. Returns how many there are. */
static int put_long(void)
{
    char *bytes = malloc(LONG_BYTES), name[30];
    int i, count = 0;
    for (i = 0; i < LONG_ENTRIES; i++) {
        sprintf(name, "long %d", i);
        memset(bytes, i + 1, LONG_BYTES);
        pvm_initsend(PvmDataRaw);
        pvm_pkbyte(bytes, LONG_BYTES, 1);
        count += pvm_putinfo(name, pvm_getsbuf(), PvmMboxPersistent) == 0;
    }
    free(bytes);
    return count;
}

/* Returns how many long entries are there unchanged. */
static int get_long(void)
{
    char *bytes = malloc(LONG_BYTES), name[30];
    int i, k, message, count = 0;
    for (i = 0; i < LONG_ENTRIES; i++) {
        sprintf(name, "long %d", i);
        message = pvm_recvinfo(name, 0, PvmMboxDefault);
        if (message <= 0)
            continue;
        pvm_setrbuf(message);
        pvm_upkbyte(bytes, LONG_BYTES, 1);
        for (k = 0; k < LONG_BYTES && bytes[k] == i + 1; k++)
            ;
        count += k == LONG_BYTES;
        pvm_freebuf(message);
    }
    free(bytes);
    return count;
}

/* Adds a host. Returns its number in the machine. */
static int add(char *name)
{
    int result = 0;
    pvm_addhosts(&name, 1, &result);
    return result > 0 ? result >> 18 : result;
}

static int delete(char *name)
{
    int result = -1;
    pvm_delhosts(&name, 1, &result);
    return result;
}

/* Waits until the mailbox has no entries. */
static int is_empty(char *box)
{
    struct pvmmboxinfo *infos;
    int turn, classes = 1;
    for (turn = 0; turn < 1000 && classes > 0; turn++) {
        pvm_getmboxinfo(box, &classes, &infos);
        if (classes > 0)
            usleep(20000);
    }
    return classes == 0;
}

/* Receives the notifies about the ends of these tasks, in any order. */
static int ends_of(int first, int second)
{
    int one = received_number(-1, ENDED), other = received_number(-1, ENDED);
    return (one == first && other == second) || (one == second && other == first);
}

static void command(void)
{
    int hosts[4], lame[3], i, joined = 0, well = 0, is_put = 1, count = 0, looker;
    for (i = 0; i < 4; i++)
        hosts[i] = host_tid(names[i]);
    pvm_notify(PvmHostDelete, LOST, 4, hosts);
    pvm_notify(PvmHostAdd, ADDED, -1, NULL);
    for (i = 0; i < WORKERS_MAX; i++) {
        tids[i] = spawn_on(HOST_OF(i), "work");
        joined += received_number(tids[i], JOINED) == i;
    }
    SHOW(joined);
    for (i = 0; i < 3; i++) {
        lame[i] = spawn_on(names[i == 0 ? 0 : i + 1], "lame");
        case_receive(lame[i], JOINED, PATIENCE);
    }
    pvm_notify(PvmTaskExit, ENDED, WORKERS_MAX, tids);
    pvm_notify(PvmTaskExit, ENDED, 1, lame);
    case_signal(lame[1], GO);
    case_signal(lame[2], GO);
    looker = spawn_on("charlie", "look");
    case_receive(looker, JOINED, PATIENCE);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(tids, WORKERS_MAX, 1);
    pvm_mcast(tids, WORKERS_MAX, GO);
    SHOW(rounds_of(WORKERS_MAX) == ROUNDS);
    SHOW(put_long());
    order(FEWER);
    SHOW(rounds_of(6) == ROUNDS);

    puts("The first host leaves.");
    SHOW(delete("alfa"));
    put(LATER, 5, PvmMboxPersistent, &is_put);
    SHOW(is_put);
    SHOW(received_number(looker, FOUND));
    SHOW(rounds_of(6) == ROUNDS);
    SHOW(received_number(-1, LOST) == hosts[0]);
    SHOW(ends_of(tids[6], lame[0]));
    SHOW(received_number(lame[1], LAMED));
    SHOW(received_number(lame[2], LAMED));
    SHOW(get(KEPT, PvmMboxDefault));
    SHOW(is_empty("own"));
    SHOW(get_long());
    SHOW(start_fresh_tasks());
    SHOW(next_instance("delta"));
    SHOW(add("alfa"));
    SHOW(received_number(-1, ADDED));
    SHOW(rounds_of(6) == ROUNDS);
    order(FEWER);
    SHOW(rounds_of(4) == ROUNDS);

    puts("The next one leaves.");
    SHOW(delete("bravo"));
    SHOW(rounds_of(4) == ROUNDS);
    SHOW(received_number(-1, LOST) == hosts[1]);
    SHOW(ends_of(tids[4], tids[5]));
    SHOW(get(KEPT, PvmMboxDefault));
    SHOW(get(LATER, PvmMboxDefault));
    SHOW(get_long());
    SHOW(start_fresh_tasks());
    SHOW(add("bravo"));
    SHOW(received_number(-1, ADDED));
    SHOW(next_instance("alfa"));
    SHOW(next_instance("bravo"));
    SHOW(rounds_of(4) == ROUNDS);

    order(END);
    for (i = 0; i < 4; i++)
        well += received_number(tids[i], REPORT);
    SHOW(well);
    for (i = 0; i < 4; i++)
        SHOW(received_number(-1, ENDED) > 0);
    SHOW(pvm_nrecv(-1, ENDED));
    SHOW(pvm_nrecv(-1, LOST));
    SHOW(pvm_nrecv(-1, ADDED));
    pvm_config(&count, NULL, NULL);
    SHOW(count);
}

int main(int argc, char **argv)
{
    char line[5000];
    case_begin();
    if (argc == 1) {
        /* The chief is on the last host, since tasks of the first one end. */
        snprintf(line, sizeof line, "\"$PVM_RSH\" delta '%s' command", case_path());
        return system(line) != 0;
    }
    pvm_mytid();
    switch (argv[1][0]) {
    case 'w': work(); break;
    case 'l': argv[1][1] == 'a' ? be_lame() : look(); break;
    case 'f': case_signal(pvm_parent(), FRESH); break;
    case 'j': join(); break;
    default: command();
    }
    pvm_exit();
    return 0;
}
