/* Tests groups whose members call barriers and collectives while some of them are killed at random moments,
 * leave between two calls, and are replaced. Every call must return, with the right value or with an error
 * about a missing member. Afterwards the group must work as if it were new.
 *   groups chief seconds=N seed=N members=N      prints "total ..." at the end, or "error ..."
 *   groups member                                is started by the chief
 */
#include <pvm3.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define GROUP "torture"
/* The name of the group that is frozen at the beginning of each round. */
#define FROZEN "frozen"
#define MEMBERS_MAX 64
/* The number of operations in a round in which nobody leaves. */
#define OPERATIONS 3000
/* The longest time that a step may take, in seconds; a barrier waits 10 s for replacements of dead members. */
#define PATIENCE 30
/* The longest pause before a member is killed, in microseconds. */
#define FIRE_TIME 20000

enum tag { ORDER = 1, JOINED, REPORT, EXIT };
enum order { GO, REJOIN, PREPARE, END };

static void error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("error ");
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    pvm_exit();
    exit(1);
}

/* Returns a number below `sides` that depends only on the seed, and advances the seed. */
static unsigned dice(unsigned long long *seed, unsigned sides)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (unsigned)(*seed >> 20) % sides;
}

static void send_ints(int to, int tag, int *words, int count)
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint(words, count, 1);
    pvm_send(to, tag);
}

/* ----- A member */

/* Returns whether the result of a call is allowed: success, or an error about a missing member. */
static int is_allowed(int code)
{
    return code == 0 || code == PvmNoTask || code == PvmNoInst || code == PvmNoGroup;
}

static int leave(int instance)
{
    int code = pvm_lvgroup(instance % 2 ? "odd" : "even");
    return code ? code : pvm_lvgroup(GROUP);
}

static int half_barrier(int instance, int members)
{
    return pvm_barrier(instance % 2 ? "odd" : "even", (members + 1 - instance % 2) / 2);
}

/* While members are being killed, the sum may be that of the remaining ones. */
static int sum(char *group, int instance, int members, int number, int strict)
{
    int value = (instance + 1) * (number + 1), root = number % members;
    int code = pvm_reduce(PvmSum, &value, 1, PVM_INT, 7, group, root);
    return code == 0 && strict && instance == root && value != members * (members + 1) / 2 * (number + 1) ? -1001 : code;
}

/* While members are being killed, the items of those with the highest numbers may be missing. */
static int collect(int instance, int members, int number, int strict)
{
    int own = instance * 1000 + number, root = number % members, all[MEMBERS_MAX] = {0}, i;
    int code = pvm_gather(all, &own, 1, PVM_INT, 8, GROUP, root);
    for (i = 0; code == 0 && instance == root && i < members; i++)
        if (all[i] != i * 1000 + number && (strict || all[i]))
            return -1002;
    return code;
}

/* Runs operations in an order that the seed determines, the same for all members; stops if one fails. From
 * operation `leave_at` on, the group continues without the member `leaver`. */
static int operate(int instance, int members, unsigned long long seed, int leave_at, int leaver, int strict, int *number)
{
    int place = pvm_getinst(FROZEN, pvm_mytid()), code = pvm_freezegroup(FROZEN, members);
    code = code == members ? pvm_barrier(GROUP, members) : code;
    for (*number = 0; code == 0 && *number < OPERATIONS; ++*number) {
        if (leaver >= 0 && *number >= leave_at) {
            /* This barrier makes sure that earlier operations are over, since a collective call does not wait
             * for all members. */
            code = pvm_barrier(GROUP, *number == leave_at ? members : members - 1);
            if (code || instance != leaver)
                continue;
            pvm_lvgroup(FROZEN);
            return leave(instance);
        }
        switch (dice(&seed, 8)) {
        case 0: code = sum(GROUP, instance, members, *number, strict); break;
        case 3: code = pvm_barrier(FROZEN, members); break;
        case 4: code = sum(FROZEN, place, members, *number, strict); break;
        case 1: code = collect(instance, members, *number, strict); break;
        case 2: code = half_barrier(instance, members); break;
        default: code = pvm_barrier(GROUP, members);
        }
    }
    /* Waits until no member is in the last operation any more. */
    if (code == 0 && leaver < 0)
        code = pvm_barrier(GROUP, members);
    pvm_lvgroup(FROZEN);
    return code;
}

static int join(int parent)
{
    int words[2];
    words[0] = pvm_joingroup(GROUP);
    words[1] = pvm_joingroup(words[0] % 2 ? "odd" : "even");
    send_ints(parent, JOINED, words, 2);
    return words[0];
}

static int member(void)
{
    int parent = pvm_parent(), instance = join(parent);
    for (;;) {
        int order[6], report[3];
        unsigned long long seed;
        pvm_recv(parent, ORDER);
        pvm_upkint(order, 6, 1);
        if (order[0] == END)
            break;
        if (order[0] == REJOIN) {
            instance = join(parent);
            continue;
        }
        if (order[0] == PREPARE) {
            report[0] = pvm_joingroup(FROZEN);
            send_ints(parent, JOINED, report, 1);
            continue;
        }
        seed = (unsigned)order[2] | 1ull << 40;
        report[1] = operate(instance, order[1], seed, order[3], order[4], order[5], &report[0]);
        /* Others may wait for this member, so it leaves the group, which ends their waits. */
        if (report[1] && (report[2] = leave(instance)) != 0)
            report[1] = -1003;
        send_ints(parent, REPORT, report, 2);
    }
    pvm_lvgroup(GROUP);
    pvm_exit();
    return 0;
}

/* ----- The chief */

static int tids[MEMBERS_MAX], instances[MEMBERS_MAX], members;
static unsigned long long seed;
static int rounds, killed, left, failures;
static long operations;

static int await(int tid, int tag, const char *what)
{
    struct timeval time = {PATIENCE, 0};
    int buffer = pvm_trecv(tid, tag, &time);
    if (buffer <= 0)
        error("hang: no %s of t%x in round %d", what, tid, rounds);
    return buffer;
}

static void spawn(char *program, int place)
{
    char *arguments[] = {"member", NULL};
    if (pvm_spawn(program, arguments, PvmTaskDefault, "", 1, &tids[place]) != 1)
        error("pvm_spawn gave %d", tids[place]);
    pvm_notify(PvmTaskExit, EXIT, 1, &tids[place]);
}

/* Waits for the notification of a task's death; after it the daemon has removed the task. */
static void await_end(int tid)
{
    int gone = 0, pending[MEMBERS_MAX], count = 0;
    while (gone != tid) {
        await(-1, EXIT, "end");
        pvm_upkint(&gone, 1, 1);
        if (gone != tid)
            pending[count++] = gone;
    }
    while (count-- > 0)
        send_ints(pvm_mytid(), EXIT, &pending[count], 1);
}

static void await_join(int place)
{
    int words[2], i;
    await(tids[place], JOINED, "pvm_joingroup");
    pvm_upkint(words, 2, 1);
    if (words[0] < 0 || words[0] >= members || words[1] < 0)
        error("pvm_joingroup gave %d and %d in round %d", words[0], words[1], rounds);
    for (i = 0; i < members; i++)
        if (i != place && instances[i] == words[0])
            error("two members have the number %d", words[0]);
    instances[place] = words[0];
}

/* Waits until all members have joined the group that they will freeze, since pvm_freezegroup would wait for a
 * member that died before it joined. */
static void prepare(int *order)
{
    int i, place;
    for (order[0] = PREPARE, i = 0; i < members; i++)
        send_ints(tids[i], ORDER, order, 6);
    for (order[0] = GO, i = 0; i < members; i++) {
        await(tids[i], JOINED, "pvm_joingroup");
        pvm_upkint(&place, 1, 1);
        if (place < 0 || place >= members)
            error("pvm_joingroup gave %d in round %d", place, rounds);
    }
}

/* Chooses which members die and which one leaves; the calls of the others must succeed or report it. */
static void one_round(char *program)
{
    int victim[MEMBERS_MAX] = {0}, joins[MEMBERS_MAX] = {0}, leaver = -1, i, victims = 0, rest = members, order[6] = {GO, members, 0, 0, -1}, doomed;
    switch (dice(&seed, 4)) {
    case 0: break;
    case 1: leaver = dice(&seed, members); break;
    default: victims = 1 + dice(&seed, members > 2 ? 2 : 1);
    }
    for (i = 0; i < victims; i++)
        victim[dice(&seed, members)] = 1;
    order[2] = (int)dice(&seed, 1u << 30);
    prepare(order);
    order[3] = (int)dice(&seed, OPERATIONS);
    order[4] = leaver < 0 ? -1 : instances[leaver];
    order[5] = victims == 0;
    for (i = 0; i < members; i++)
        send_ints(tids[i], ORDER, order, 6);
    for (i = 0; i < members; i++)
        if (victim[i]) {
            usleep(dice(&seed, FIRE_TIME));
            pvm_sendsig(tids[i], SIGKILL);
            killed++;
        }
    for (i = 0; i < members; i++) {
        int report[2];
        if (victim[i])
            continue;
        await(tids[i], REPORT, "report");
        pvm_upkint(report, 2, 1);
        operations += report[0];
        if (!is_allowed(report[1]) || (report[1] != 0 && victims == 0))
            error("operation %d gave %d in round %d, with %d victims, leaver %d", report[0], report[1], rounds, victims, leaver);
        failures += report[1] != 0;
        joins[i] = report[1] != 0 || i == leaver;
    }
    for (i = 0; i < members; i++) {
        if (victim[i])
            await_end(tids[i]);
        if (victim[i] || joins[i]) {
            instances[i] = -1;
            rest--;
        }
    }
    if (pvm_gsize(GROUP) != (rest ? rest : PvmNoGroup))
        error("pvm_gsize gave %d in round %d", pvm_gsize(GROUP), rounds);
    if (dice(&seed, 3) == 0) {
        /* This member dies while it joins. */
        i = tids[0];
        spawn(program, 0);
        usleep(dice(&seed, 8000));
        doomed = tids[0];
        pvm_sendsig(doomed, SIGKILL);
        await_end(doomed);
        while (pvm_nrecv(doomed, JOINED) > 0)
            continue;
        tids[0] = i;
        killed++;
    }
    for (i = 0; i < members; i++) {
        if (victim[i])
            spawn(program, i);
        if (joins[i]) {
            order[0] = REJOIN;
            send_ints(tids[i], ORDER, order, 6);
            left++;
        }
    }
    for (i = 0; i < members; i++)
        if (victim[i] || joins[i])
            await_join(i);
}

static int chief(char *program, int seconds)
{
    struct timeval now, end;
    int i, order[6] = {END};
    gettimeofday(&end, NULL);
    end.tv_sec += seconds;
    for (i = 0; i < members; i++)
        instances[i] = -1;
    for (i = 0; i < members; i++)
        spawn(program, i);
    for (i = 0; i < members; i++)
        await_join(i);
    do {
        rounds++;
        one_round(program);
        gettimeofday(&now, NULL);
    } while (timercmp(&now, &end, <));
    for (i = 0; i < members; i++)
        send_ints(tids[i], ORDER, order, 6);
    for (i = 0; i < members; i++)
        await_end(tids[i]);
    if (pvm_gsize(GROUP) != PvmNoGroup || pvm_gsize("odd") != PvmNoGroup)
        error("a group without members lives on");
    printf("total %d rounds %ld operations %d killed %d left %d failed\n", rounds, operations, killed, left, failures);
    pvm_exit();
    return 0;
}

int main(int count, char **arguments)
{
    int i, seconds = 5;
    members = 6;
    seed = 1;
    pvm_setopt(PvmAutoErr, 0);
    if (count > 1 && !strcmp(arguments[1], "member"))
        return member();
    for (i = 2; i < count; i++)
        if (sscanf(arguments[i], "seconds=%d", &seconds) + sscanf(arguments[i], "seed=%llu", &seed)
                + sscanf(arguments[i], "members=%d", &members) != 1)
            error("%s means nothing", arguments[i]);
    seed = seed * 0x9e3779b97f4a7c15ull | 1;
    if (members < 2 || members > MEMBERS_MAX)
        error("2 to %d members", MEMBERS_MAX);
    return chief(arguments[0], seconds);
}
