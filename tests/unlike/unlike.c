/* The chief and the workers. The chief prints one line for each cell: row, from, to and `ok` or the error,
 * separated by tabs; then lines `all` for operations in which tasks on all hosts take part; then `done`.
 */
#include "unlike.h"

#include <stdarg.h>

#define BIG (3 << 3 | 3 << 8 | 3 << 13 | 3 << 19 | 3 << 25)
const struct kind kinds[KINDS] = {
    {"amd64", "alfa", "LINUX64", 0x408c41, 8},
    {"i386", "bravo", "LINUX", 0x408841, 4},
    {"s390x", "charlie", "LINUXS390X", 0x408c41 | BIG, 8},
    {"arm64", "delta", "LINUX64", 0x408c41, 8},
};
int kind_count;

struct row rows[ROWS_MAX];
int row_count;

void make_row(const char *name, int argument, int via, const struct step steps[STEPS_MAX])
{
    struct row *row = &rows[row_count++];
    snprintf(row->name, sizeof row->name, "%s", name);
    memcpy(row->steps, steps, sizeof row->steps);
    row->argument = argument;
    row->via = via;
}

void make_pair(const char *name, int argument, action send, action check)
{
    struct step steps[STEPS_MAX] = {{SENDER, send}, {RECEIVER, check}};
    make_row(name, argument, -1, steps);
}

void make_rows(void)
{
    int i;
    messages_rows();
    fmp_rows();
    /* The rows about messages run on both routes; those about the machine do not depend on the route. */
    for (i = 0; i < row_count; i++)
        rows[i].by_both_routes = rows[i].via < 0;
    machine_rows();
}

static char complaint[400];

const char *wrong(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint, sizeof complaint, format, arguments);
    va_end(arguments);
    return complaint;
}

int receive(int from, int tag)
{
    struct timeval limit = {PATIENCE, 0};
    int mid = pvm_trecv(from, tag, &limit);
    return mid == 0 ? PvmNoData : mid;
}

int own_kind(void)
{
    static int kind = -1;
    char name[100];
    if (kind < 0 && gethostname(name, sizeof name) == 0)
        for (kind = 0; kind < KINDS - 1 && strcmp(kinds[kind].host, name); kind++)
            ;
    return kind;
}

int alike(int one, int other)
{
    return kinds[one].signature == kinds[other].signature;
}

int converted(void)
{
    return pvm_getopt(PvmItemsConverted);
}

/* ----- Workers */

static void report(const char *error)
{
    char text[sizeof complaint];
    snprintf(text, sizeof text, "%s", error ? error : "");
    pvm_initsend(PvmDataDefault);
    pvm_pkstr(text);
    pvm_send(pvm_parent(), TAG_REPORT);
}

/* All workers together: a barrier, a broadcast by the first one, a reduction at the first one, a multicast. */
static const char *together(int members, int direct)
{
    char *group = direct ? "unlike.direct" : "unlike.all";
    int instance, number = 0, i, tids[100];
    double sum[2];
    long longs[2];
    pvm_setopt(PvmRoute, direct ? PvmRouteDirect : PvmAllowDirect);
    WELL(instance = pvm_joingroup(group));
    EXPECT(pvm_barrier(group, members), 0);
    EXPECT(pvm_gsize(group), members);
    for (i = 0; i < members; i++)
        WELL(tids[i] = pvm_gettid(group, i));
    for (i = 0; i < members; i++) {
        int from = -1;
        if (i == instance) {
            WELL(pvm_initsend(PvmDataDefault));
            EXPECT(pvm_pkint(&instance, 1, 1), 0);
            EXPECT(pvm_pkdouble(&(double){instance * 1.5}, 1, 1), 0);
            EXPECT(pvm_pklong(&(long){-instance}, 1, 1), 0);
            EXPECT(i % 2 ? pvm_bcast(group, 100 + i) : pvm_mcast(tids, members, 100 + i), 0);
            continue;
        }
        WELL(receive(tids[i], 100 + i));
        EXPECT(pvm_upkint(&from, 1, 1), 0);
        EXPECT(from, i);
        EXPECT(pvm_upkdouble(sum, 1, 1), 0);
        MUST(sum[0] == i * 1.5, "%g of %d", sum[0], i);
        EXPECT(pvm_upklong(longs, 1, 1), 0);
        EXPECT((int)longs[0], -i);
    }
    for (i = 0; i < members; i++) {
        sum[0] = instance, sum[1] = 0.5;
        longs[0] = -instance, longs[1] = 1;
        number = instance;
        EXPECT(pvm_reduce(PvmSum, sum, 2, PVM_DOUBLE, 20, group, i), 0);
        EXPECT(pvm_reduce(PvmMin, longs, 2, PVM_LONG, 21, group, i), 0);
        EXPECT(pvm_reduce(PvmMax, &number, 1, PVM_INT, 22, group, i), 0);
        if (i == instance) {
            MUST(sum[0] == members * (members - 1) / 2 && sum[1] == members * 0.5, "sums %g %g", sum[0], sum[1]);
            MUST(longs[0] == 1 - members && longs[1] == 1, "minima %ld %ld", longs[0], longs[1]);
            EXPECT(number, members - 1);
        }
        EXPECT(pvm_barrier(group, members), 0);
    }
    EXPECT(pvm_lvgroup(group), 0);
    return NULL;
}

/* Requests notifications of the end of a host, and of new hosts. */
static const char *watch(int host)
{
    EXPECT(pvm_notify(PvmHostDelete, TAG_LOST, 1, &host), 0);
    EXPECT(pvm_notify(PvmHostAdd, TAG_ADDED, 1, NULL), 0);
    return NULL;
}

/* Returns the error unless both notifications have arrived. */
static const char *was_told(int lost, int added)
{
    int host = 0, count = 0;
    WELL(receive(-1, TAG_LOST));
    EXPECT(pvm_upkint(&host, 1, 1), 0);
    EXPECT(host, lost);
    WELL(receive(-1, TAG_ADDED));
    EXPECT(pvm_upkint(&count, 1, 1), 0);
    EXPECT(count, 1);
    EXPECT(pvm_upkint(&host, 1, 1), 0);
    EXPECT(host, added);
    return NULL;
}

#define ROW_TOGETHER (-1)
#define ROW_QUIT (-2)
#define ROW_ROUTE (-3)
#define ROW_WATCH (-4)
#define ROW_TOLD (-5)

static void work(void)
{
    struct cell cell;
    int step, words[9];
    pvm_setopt(PvmAutoErr, 0);
    for (;;) {
        if (pvm_recv(pvm_parent(), TAG_COMMAND) < 0 || pvm_upkint(words, 9, 1) < 0 || words[0] == ROW_QUIT)
            return;
        step = words[1];
        cell = (struct cell){words[0], words[2], words[3], words[4], words[5], words[6], words[7], words[8]};
        if (cell.row == ROW_TOGETHER) {
            report(together(step, words[2]));
        } else if (cell.row == ROW_WATCH) {
            report(watch(step));
        } else if (cell.row == ROW_TOLD) {
            report(was_told(step, words[2]));
        } else if (cell.row == ROW_ROUTE) {
            pvm_setopt(PvmRoute, step);
            report(NULL);
        } else {
            struct row *row = &rows[cell.row];
            report(row->steps[step].action(&cell, row->argument));
        }
    }
}

/* ----- The chief */

static int workers[KINDS][3];

static void command(int tid, const int words[9])
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint((int *)words, 9, 1);
    pvm_send(tid, TAG_COMMAND);
}

static const char *answer(int tid)
{
    static char text[sizeof complaint];
    if (receive(tid, TAG_REPORT) < 0 || pvm_upkstr(text) < 0)
        return "no answer";
    return *text ? text : NULL;
}

static const char *run_cell(int number, int from, int to)
{
    struct row *row = &rows[number];
    int via = row->via, i;
    static int tag = TAG_CELLS;

    /* Messages left over from a failed cell must not disturb other cells. */
    tag++;
    int sender = workers[from][SENDER], receiver = workers[to][RECEIVER];
    int forwarder = via < 0 ? 0 : workers[via][FORWARDER];
    for (i = 0; i < STEPS_MAX; i++) {
        int tid = (int[]){sender, receiver, forwarder}[row->steps[i].who];
        const char *error;
        if (!row->steps[i].action)
            continue;
        command(tid, (int[9]){number, i, from, to, sender, receiver, via, forwarder, tag});
        error = answer(tid);
        if (error)
            return wrong("step %d: %s", i, error);
    }
    return NULL;
}

static void matrix(const char *only, int direct)
{
    int number, from, to;
    for (number = 0; number < row_count; number++) {
        if ((only && strncmp(rows[number].name, only, strlen(only))) || (direct && !rows[number].by_both_routes)
            || rows[number].via >= kind_count)
            continue;
        for (from = 0; from < kind_count; from++)
            for (to = 0; to < kind_count; to++) {
                const char *error = run_cell(number, from, to);
                printf("cell\t%s%s\t%s\t%s\t%s\n", direct ? "direct: " : "", rows[number].name, kinds[from].label, kinds[to].label,
                       error ? error : "ok");
            }
    }
}

static void tell_all(int row, int argument, int second)
{
    int kind, who;
    for (kind = 0; kind < kind_count; kind++)
        for (who = 0; who < 3; who++)
            command(workers[kind][who], (int[9]){row, argument, second});
}

static void ask_all(const char *name, int row, int argument, int second)
{
    const char *error = NULL;
    int kind, who;
    tell_all(row, argument, second);
    for (kind = 0; kind < kind_count; kind++)
        for (who = 0; who < 3; who++) {
            const char *said = answer(workers[kind][who]);
            if (said && !error)
                error = wrong("%s: %s", kinds[kind].label, said);
        }
    printf("all\t%s\t%s\n", name, error ? error : "ok");
}

static int spawn_workers(int kind)
{
    char count[20], *arguments[] = {"work", count, NULL};
    int who;
    snprintf(count, sizeof count, "%d", kind_count);
    for (who = 0; who < 3; who++)
        if (pvm_spawn("unlike", arguments, PvmTaskHost, (char *)kinds[kind].host, 1, &workers[kind][who]) != 1) {
            printf("no worker on %s: %d\n", kinds[kind].host, workers[kind][who]);
            return 0;
        }
    return 1;
}

/* Sends a command to one worker on each other host. */
static const char *ask_others(int kind, int row, int argument, int second)
{
    const char *error = NULL;
    int other;
    for (other = 0; other < kind_count; other++)
        if (other != kind)
            command(workers[other][RECEIVER], (int[9]){row, argument, second});
    for (other = 0; other < kind_count; other++) {
        const char *said = other == kind ? NULL : answer(workers[other][RECEIVER]);
        if (said && !error)
            error = wrong("%s: %s", kinds[other].label, said);
    }
    return error;
}

/* Deletes a host and adds it again; the others must be notified. */
static const char *replace_host(int kind)
{
    char *name = (char *)kinds[kind].host;
    int lost = pvm_tidtohost(workers[kind][0]), info = 0, added = 0;
    const char *error = ask_others(kind, ROW_WATCH, lost, 0);
    if (error)
        return error;
    EXPECT(pvm_delhosts(&name, 1, &info), 1);
    EXPECT(pvm_addhosts(&name, 1, &added), 1);
    MUST(spawn_workers(kind), "no workers on the new host");
    return ask_others(kind, ROW_TOLD, lost, added);
}

static void replace_hosts(void)
{
    int kind;
    /* The first host cannot be deleted, since the chief runs there. */
    for (kind = 1; kind < kind_count; kind++) {
        const char *error = replace_host(kind);
        printf("all\tnotify of hosts: %s is deleted and added\t%s\n", kinds[kind].label, error ? error : "ok");
    }
}

int main(int argc, char **argv)
{
    const char *only = argc > 3 ? argv[3] : NULL;
    int kind;
    setvbuf(stdout, NULL, _IOLBF, 0);
    make_rows();
    if (argc < 2)
        return 1;
    kind_count = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(argv[1], "work")) {
        work();
        pvm_exit();
        return 0;
    }
    if (strcmp(argv[1], "chief"))
        return child_main(argc, argv);
    for (kind = 0; kind < kind_count; kind++)
        if (!spawn_workers(kind))
            return 1;
    matrix(only, 0);
    ask_all("barrier, mcast, bcast, reduce", ROW_TOGETHER, 3 * kind_count, 0);
    ask_all("direct route", ROW_ROUTE, PvmRouteDirect, 0);
    matrix(only, 1);
    ask_all("barrier, mcast, bcast, reduce; direct", ROW_TOGETHER, 3 * kind_count, 1);
    if (!only)
        replace_hosts();
    tell_all(ROW_QUIT, 0, 0);
    pvm_exit();
    printf("done\n");
    return 0;
}
