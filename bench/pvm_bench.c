/* The measures on any PVM: compiled once, run on every libpvm3 through LD_LIBRARY_PATH.
 *
 *   pvm_bench MEASURE default|direct REPETITION_MS REPETITIONS
 *
 * MEASURE: latency, bandwidth, arrays, rate (two tasks, pinned to cores 0 and 1), loaded-NAME (two tasks
 * that are not pinned, while what NAME says uses the cores), ring, mcast, spawn (32 tasks), starts
 * (1000 tasks of /bin/true), idle-2, idle-32 (REPETITION_MS is how long the tasks wait), groups-2 to groups-32
 * (that many tasks), hosts (the two tasks on two hosts), collectives-4 to collectives-32 (that many tasks, one on
 * each host), add-3, add-32 (that many hosts are added, whose names are in BENCH_HOSTS). The master spawns the
 * other tasks, which are the same program with the argument `worker`, and tells them what to do.
 */
#include "bench.h"
#include "pvm_starts.h"
#include <pvm3.h>

/* The longest message of measures with many tasks, in bytes. */
#define MANY_BYTES_MAX (1 << 20)
#define MCAST_BYTES (64 << 10)

#define GROUP "bench"

enum work { PING, PING_APART, RATE, RING, RING_ALL, MCAST, IDLE, JOIN, PROVE, FREEZE, BARRIER, REDUCE, GATHER, BCAST,
            SCATTER, LEAVE, END };

/* The work that all tasks do next, at the same time. */
struct order {
    int work, form, size, count;
};

/* This task's rank, and the tids of all tasks. `on_hosts`: each task has a host of its own. */
static struct {
    int rank, tasks, on_hosts;
    int tids[TASKS_MANY];
} here;

static char *data, *gathered;

static int right(void) { return here.tids[(here.rank + 1) % here.tasks]; }
static int left(void) { return here.tids[(here.rank + here.tasks - 1) % here.tasks]; }

/* ---- what the tasks do; rank 0 is the master ---- */

/* The two arrays of PING_APART. They come from malloc, as those of most programs and of numpy do: malloc places them 16
 * bytes behind the start of a page, where copies take a tenth longer than at the start of a line of the cache. */
static struct {
    char *from, *into;
    int size;
} arrays;

static void make_arrays(int size)
{
    if (arrays.size == size)
        return;
    free(arrays.from);
    free(arrays.into);
    arrays.from = malloc(size);
    arrays.into = malloc(size);
    if (!arrays.from || !arrays.into)
        fail("no memory");
    memset(arrays.from, here.rank + 1, size);
    memset(arrays.into, 0, size);
    arrays.size = size;
}

/* PING_APART: the tasks send from one array and receive into another one, as programs in Python do. */
static void ping(struct order order)
{
    int peer = here.tids[1 - here.rank];
    char *from = data, *into = data;
    if (order.work == PING_APART) {
        make_arrays(order.size);
        from = arrays.from;
        into = arrays.into;
    }
    for (int i = 0; i < order.count; i++) {
        if (here.rank == 0) {
            send_form(order.form, peer, TAG_DATA, from, order.size);
            receive_form(order.form, peer, TAG_DATA, into, order.size);
        } else {
            receive_form(order.form, peer, TAG_DATA, into, order.size);
            send_form(order.form, peer, TAG_DATA, from, order.size);
        }
    }
}

static void rate(struct order order)
{
    int peer = here.tids[1 - here.rank];
    for (int window = 0; window < order.count; window++) {
        if (here.rank == 0) {
            for (int i = 0; i < WINDOW_MESSAGES; i++)
                send_form(order.form, peer, TAG_DATA, data, order.size);
            receive_form(order.form, peer, TAG_ANSWER, data, 4);
        } else {
            for (int i = 0; i < WINDOW_MESSAGES; i++)
                receive_form(order.form, peer, TAG_DATA, data, order.size);
            send_form(order.form, peer, TAG_ANSWER, data, 4);
        }
    }
}

/* Passes one token around the ring `count` times. */
static void ring(struct order order)
{
    for (int lap = 0; lap < order.count; lap++) {
        if (here.rank == 0) {
            send_form(order.form, right(), TAG_DATA, data, order.size);
            receive_form(order.form, left(), TAG_DATA, data, order.size);
        } else {
            receive_form(order.form, left(), TAG_DATA, data, order.size);
            send_form(order.form, right(), TAG_DATA, data, order.size);
        }
    }
}

/* Sends to the right neighbour and receives from the left one, `count` times. */
static void ring_all(struct order order)
{
    for (int round = 0; round < order.count; round++) {
        send_form(order.form, right(), TAG_DATA, data, order.size);
        receive_form(order.form, left(), TAG_DATA, data, order.size);
    }
}

/* Multicasts one long message to all, and receives a short answer from each. */
static void mcast(struct order order)
{
    for (int round = 0; round < order.count; round++) {
        if (here.rank == 0) {
            pvm_initsend(PvmDataRaw);
            pvm_pkbyte(data, order.size, 1);
            must(pvm_mcast(here.tids + 1, here.tasks - 1, TAG_DATA), "pvm_mcast");
            for (int i = 1; i < here.tasks; i++)
                receive_form(RAW_BYTE, -1, TAG_ANSWER, data, 8);
        } else {
            receive_form(RAW_BYTE, here.tids[0], TAG_DATA, data, order.size);
            send_form(RAW_BYTE, here.tids[0], TAG_ANSWER, data, 8);
        }
    }
}

/* The workers wait in pvm_recv for `count` ms, and report for which part of that time they used their core. */
static void idle(struct order order)
{
    double share;
    if (here.rank == 0) {
        struct timespec wait = {order.count / 1000, order.count % 1000 * 1000000L};
        nanosleep(&wait, NULL);
        for (int i = 1; i < here.tasks; i++)
            send_form(RAW_BYTE, here.tids[i], TAG_DATA, data, 8);
        for (int i = 1; i < here.tasks; i++) {
            receive_form(RAW_BYTE, here.tids[i], TAG_ANSWER, (char *)&share, sizeof share);
            report("idle", here.tasks, share, "%");
        }
    } else {
        double start = now_us(), used = cpu_us();
        receive_form(RAW_BYTE, here.tids[0], TAG_DATA, data, 8);
        share = 100 * (cpu_us() - used) / (now_us() - start);
        send_form(RAW_BYTE, here.tids[0], TAG_ANSWER, (char *)&share, sizeof share);
    }
}

/* The tasks become members of the group. The master has joined before: if several tasks of PVM 3.4.6 use groups
 * first at the same time, each may start a group server. */
static void join(void)
{
    if (here.rank != 0)
        must(pvm_joingroup(GROUP), "pvm_joingroup");
    must(pvm_barrier(GROUP, here.tasks), "pvm_barrier");
}

static void barrier(struct order order)
{
    for (int i = 0; i < order.count; i++)
        must(pvm_barrier(GROUP, here.tasks), "pvm_barrier");
}

static void reduce(int root, int size)
{
    must(pvm_reduce(PvmSum, data, size / (int)sizeof(double), PVM_DOUBLE, TAG_DATA, GROUP, root), "pvm_reduce");
}

static void gather(int root, int size)
{
    must(pvm_gather(gathered, data, size, PVM_BYTE, TAG_DATA, GROUP, root), "pvm_gather");
}

static void collect(struct order order)
{
    int root = pvm_getinst(GROUP, here.tids[0]);
    for (int i = 0; i < order.count; i++) {
        renew(data, order.size, i);
        (order.work == REDUCE ? reduce : gather)(root, order.size);
    }
}

/* The master broadcasts a new message to the group, and gathers a short answer from each member. */
static void broadcast(struct order order)
{
    int root = pvm_getinst(GROUP, here.tids[0]);
    for (int i = 0; i < order.count; i++) {
        if (here.rank == 0) {
            renew(data, order.size, i);
            pvm_initsend(PvmDataRaw);
            pvm_pkbyte(data, order.size, 1);
            must(pvm_bcast(GROUP, TAG_DATA), "pvm_bcast");
        } else {
            receive_form(RAW_BYTE, here.tids[0], TAG_DATA, data, order.size);
        }
        gather(root, 8);
    }
}

/* The root scatters a part to each member, and gathers a short answer from each. */
static void scatter(struct order order)
{
    int root = pvm_getinst(GROUP, here.tids[0]);
    for (int i = 0; i < order.count; i++) {
        if (here.rank == 0)
            renew(gathered, order.size, i);
        must(pvm_scatter(data, gathered, order.size, PVM_BYTE, TAG_DATA, GROUP, root), "pvm_scatter");
        gather(root, 8);
    }
}

/* Computes one sum and one gather with known results, so that a fast but wrong library does not win. */
static void prove_group(void)
{
    double number = here.rank + 1, sum = here.tasks * (here.tasks + 1) / 2;
    int root = pvm_getinst(GROUP, here.tids[0]);
    memcpy(data, &number, sizeof number);
    reduce(root, sizeof number);
    if (here.rank == 0 && memcmp(data, &sum, sizeof sum) != 0)
        fail("wrong sum");
    int size = gather_sizes[1], seed = pvm_getinst(GROUP, pvm_mytid());
    fill(data, size, seed);
    gather(root, size);
    for (int instance = 0; here.rank == 0 && instance < here.tasks; instance++)
        check(gathered + instance * size, size, instance);
}

static void perform(struct order order)
{
    switch (order.work) {
    case JOIN: join(); break;
    case PROVE: prove_group(); break;
    case FREEZE: must(pvm_freezegroup(GROUP, here.tasks), "pvm_freezegroup"); break;
    case BARRIER: barrier(order); break;
    case REDUCE:
    case GATHER: collect(order); break;
    case BCAST: broadcast(order); break;
    case SCATTER: scatter(order); break;
    case LEAVE: must(pvm_lvgroup(GROUP), "pvm_lvgroup"); break;
    case PING:
    case PING_APART: ping(order); break;
    case RATE: rate(order); break;
    case RING: ring(order); break;
    case RING_ALL: ring_all(order); break;
    case MCAST: mcast(order); break;
    case IDLE: idle(order); break;
    }
}

/* ---- worker ---- */

static void worker(void)
{
    int parent = must(pvm_parent(), "pvm_parent");
    must(pvm_recv(parent, TAG_SETUP), "pvm_recv");
    int route, pinned;
    pvm_upkint(&here.rank, 1, 1);
    pvm_upkint(&here.tasks, 1, 1);
    pvm_upkint(&route, 1, 1);
    pvm_upkint(&pinned, 1, 1);
    must(pvm_upkint(here.tids, here.tasks, 1), "pvm_upkint");
    pvm_setopt(PvmRoute, route);
    if (pinned)
        pin_to_core(here.rank);
    data = memory(pinned ? ARRAY_BYTES_MAX : MANY_BYTES_MAX);
    for (;;) {
        struct order order;
        must(pvm_recv(parent, TAG_ORDER), "pvm_recv");
        must(pvm_upkint((int *)&order, 4, 1), "pvm_upkint");
        if (order.work == END)
            break;
        send_form(RAW_BYTE, parent, TAG_READY, data, 0);
        perform(order);
    }
    pvm_exit();
}

/* ---- master ---- */

/* Returns the name of another host of the machine. */
static char *other_host(void)
{
    struct pvmhostinfo *hosts;
    int count;
    must(pvm_config(&count, NULL, &hosts), "pvm_config");
    for (int i = 0; i < count; i++)
        if (hosts[i].hi_tid != pvm_tidtohost(pvm_mytid()))
            return hosts[i].hi_name;
    fail("there is one host only");
    return NULL;
}

static void start_workers(char *program, char *host, int tasks, int route, int pinned)
{
    here.tasks = tasks;
    here.tids[0] = must(pvm_mytid(), "pvm_mytid");
    pvm_setopt(PvmRoute, route);
    spawn(program, "worker", host, tasks - 1, here.tids + 1);
    must(pvm_notify(PvmTaskExit, TAG_END, tasks - 1, here.tids + 1), "pvm_notify");
    for (int rank = 1; rank < tasks; rank++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&rank, 1, 1);
        pvm_pkint(&tasks, 1, 1);
        pvm_pkint(&route, 1, 1);
        pvm_pkint(&pinned, 1, 1);
        pvm_pkint(here.tids, tasks, 1);
        must(pvm_send(here.tids[rank], TAG_SETUP), "pvm_send");
    }
    if (pinned)
        pin_to_core(0);
    data = memory(pinned ? ARRAY_BYTES_MAX : MANY_BYTES_MAX);
}

/* Sends `order` to all tasks and executes it; returns the time in us since all tasks were ready. */
static double timed(struct order order)
{
    for (int rank = 1; rank < here.tasks; rank++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint((int *)&order, 4, 1);
        must(pvm_send(here.tids[rank], TAG_ORDER), "pvm_send");
    }
    if (order.work == END)
        return 0;
    for (int rank = 1; rank < here.tasks; rank++)
        receive_form(RAW_BYTE, here.tids[rank], TAG_READY, data, 0);
    double start = now_us();
    perform(order);
    return now_us() - start;
}

/* Ends the workers and waits until the daemon has reported their ends. */
static void end_workers(void)
{
    struct order order = {END, 0, 0, 0};
    timed(order);
    for (int rank = 1; rank < here.tasks; rank++)
        must(pvm_recv(-1, TAG_END), "pvm_recv");
}

/* PvmCopyWay of hpvm. Debian's PVM does not know it, and then says so unless PvmAutoErr is 0. */
#define COPY_WAY 1007

/* How long two tasks exchange messages of 1 MiB and more before they are measured, in us, and how often: hpvm learns which
 * copies are the fastest (decision 15), and tries the others meanwhile. */
#define LEARNING_US_MIN 20e3
#define LEARNING_US_MAX 250e3
#define LEARNING_EXCHANGES 20

/* Warms up, then repeats the measure; reports the time of one exchange in us, multiplied by `scale`. */
static void measure(const char *name, struct order order, struct effort effort, double scale)
{
    int many = order.work == PING || order.work == BARRIER;
    order.count = many ? warm_exchanges(order.size) : TRIAL_EXCHANGES;
    int is_collective = order.work >= REDUCE && order.work <= SCATTER;
    double elapsed = timed(order);
    if (elapsed < effort.repetition_us || is_collective)
        elapsed = timed(order);
    int warm = is_collective ? collective_warm_exchanges(elapsed, order.count) : 0;
    if (warm > order.count) {
        order.count = warm;
        elapsed = timed(order);
    }
    int exchanges = 2 * order.count;
    for (double spent = 2 * elapsed; many && order.size >= 1 << 20 && spent < LEARNING_US_MAX
         && (spent < LEARNING_US_MIN || exchanges < LEARNING_EXCHANGES);
         spent += elapsed, exchanges += order.count)
        elapsed = timed(order);
    order.count = exchanges_for(effort, elapsed, order.count);
    for (int i = 0; i < effort.repetitions; i++) {
        double exchange_us = timed(order) / order.count;
        if (order.work == RATE)
            report(name, order.size, WINDOW_MESSAGES / exchange_us, "M/s");
        else
            report(name, order.work >= JOIN || here.on_hosts ? here.tasks : order.size, exchange_us * scale, "us");
    }
}

/* Makes one exchange with known data, so that a fast but wrong library does not win. */
static void prove(int form, int size)
{
    struct order order = {PING, form, size, 1};
    fill(data, size, form + 1);
    timed(order);
    check(data, size, form + 1);
}

static void measure_pair(const int *sizes, int size_count, int few_forms, struct effort effort)
{
    for (int s = 0; s < size_count; s++) {
        for (int form = 0; form < FORM_COUNT; form++) {
            struct order order = {PING, form, sizes[s], 0};
            if (few_forms && sizes[s] != 8 && form != PSEND && form != RAW_BYTE)
                continue;
            if (!few_forms && form != PSEND && form != RAW_BYTE && form != RAW_DOUBLE
                && form != DEFAULT_DOUBLE)
                continue;
            if (form != PSEND && sizes[s] > PACKED_BYTES_MAX)
                continue;
            char name[64];
            snprintf(name, sizeof name, "pingpong_%s", form_names[form]);
            prove(form, sizes[s]);
            measure(name, order, effort, 0.5);
            pvm_setopt(PvmAutoErr, 0);
            int way = form == PSEND && sizes[s] >= 64 << 10 ? pvm_getopt(COPY_WAY) : 0;
            pvm_setopt(PvmAutoErr, 1);
            if (way > 0)
                report("copy_way", sizes[s], way, "way");
        }
    }
}

/* The bandwidth that programs in Python are compared with. */
static void measure_arrays(struct effort effort)
{
    for (int s = 0; s < COUNT_OF(array_sizes); s++) {
        prove(PSEND, array_sizes[s]);
        measure("arrays_psend", (struct order){PING_APART, PSEND, array_sizes[s], 0}, effort, 0.5);
    }
}

/* While other processes use the cores. */
static void measure_loaded(const char *beside, struct effort effort)
{
    for (int s = 0; s < COUNT_OF(loaded_sizes); s++) {
        prove(PSEND, loaded_sizes[s]);
        measure(loaded_name(beside, "psend"), (struct order){PING, PSEND, loaded_sizes[s], 0}, effort, 0.5);
        prove(RAW_BYTE, loaded_sizes[s]);
        measure(loaded_name(beside, "raw_byte"), (struct order){PING, RAW_BYTE, loaded_sizes[s], 0}, effort, 0.5);
    }
}

static void measure_hosts(struct effort effort)
{
    static const int forms[] = {PSEND, RAW_BYTE, DEFAULT_DOUBLE};
    for (int s = 0; s < COUNT_OF(hosts_sizes); s++) {
        for (int f = 0; f < COUNT_OF(forms); f++) {
            char name[64];
            snprintf(name, sizeof name, "pingpong_%s", form_names[forms[f]]);
            prove(forms[f], hosts_sizes[s]);
            measure(name, (struct order){PING, forms[f], hosts_sizes[s], 0}, effort, 0.5);
        }
    }
}

static void measure_rate(struct effort effort)
{
    static const int forms[] = {PSEND, RAW_BYTE, DEFAULT_INT};
    for (int f = 0; f < COUNT_OF(forms); f++) {
        char name[64];
        snprintf(name, sizeof name, "rate_%s", form_names[forms[f]]);
        measure(name, (struct order){RATE, forms[f], 8, 0}, effort, 1);
    }
}

static void measure_ring(struct effort effort)
{
    static const int forms[] = {PSEND, RAW_BYTE, DEFAULT_INT};
    for (int s = 0; s < COUNT_OF(ring_sizes); s++) {
        for (int f = 0; f < COUNT_OF(forms); f++) {
            char name[64];
            snprintf(name, sizeof name, "ring_%s", form_names[forms[f]]);
            measure(name, (struct order){RING, forms[f], ring_sizes[s], 0}, effort, 1.0 / TASKS_MANY);
            snprintf(name, sizeof name, "ringall_%s", form_names[forms[f]]);
            measure(name, (struct order){RING_ALL, forms[f], ring_sizes[s], 0}, effort, 1);
        }
    }
}

static void measure_group(struct effort effort)
{
    gathered = memory((size_t)here.tasks * gather_sizes[COUNT_OF(gather_sizes) - 1]);
    must(pvm_joingroup(GROUP), "pvm_joingroup");
    timed((struct order){JOIN, 0, 0, 1});
    timed((struct order){PROVE, 0, 0, 1});
    measure("barrier", (struct order){BARRIER, 0, 0, 0}, effort, 1);
    for (int s = 0; s < COUNT_OF(reduce_sizes); s++)
        measure(name_of("reduce", reduce_sizes[s]), (struct order){REDUCE, 0, reduce_sizes[s], 0}, effort, 1);
    for (int s = 0; s < COUNT_OF(gather_sizes); s++)
        measure(name_of("gather", gather_sizes[s]), (struct order){GATHER, 0, gather_sizes[s], 0}, effort, 1);
    if (here.on_hosts) {
        for (int s = 0; s < COUNT_OF(bcast_sizes); s++)
            measure(name_of("bcast", bcast_sizes[s]), (struct order){BCAST, 0, bcast_sizes[s], 0}, effort, 1);
        measure(name_of("mcast", MCAST_BYTES), (struct order){MCAST, 0, MCAST_BYTES, 0}, effort, 1);
    } else {
        for (int s = 0; s < COUNT_OF(local_bcast_sizes); s++)
            measure(name_of("bcast", local_bcast_sizes[s]), (struct order){BCAST, 0, local_bcast_sizes[s], 0}, effort, 1);
        for (int s = 0; s < COUNT_OF(scatter_sizes); s++)
            measure(name_of("scatter", scatter_sizes[s]), (struct order){SCATTER, 0, scatter_sizes[s], 0}, effort, 1);
        timed((struct order){FREEZE, 0, 0, 1});
        measure("barrier_frozen", (struct order){BARRIER, 0, 0, 0}, effort, 1);
    }
    timed((struct order){LEAVE, 0, 0, 1});
}

static void master(char *program, const char *what, int route, struct effort effort)
{
    here.on_hosts = strncmp(what, "collectives-", 12) == 0;
    int group = here.on_hosts || strncmp(what, "groups-", 7) == 0, pair = strcmp(what, "latency") == 0
        || strcmp(what, "bandwidth") == 0 || strcmp(what, "rate") == 0 || strcmp(what, "arrays") == 0
        || tasks_of(what) == 2;
    int far = strcmp(what, "hosts") == 0, loaded = strncmp(what, "loaded-", 7) == 0;
    pair |= far | loaded;
    int tasks = pair ? 2 : group ? tasks_of(what) : TASKS_MANY;
    if (tasks < 2 || tasks > TASKS_MANY)
        fail("2 to 32 tasks");
    if (strcmp(what, "spawn") == 0) {
        measure_spawn(program, effort.repetitions);
        return;
    }
    if (strcmp(what, "starts") == 0) {
        measure_starts(effort.repetitions);
        return;
    }
    if (strncmp(what, "add-", 4) == 0) {
        measure_adding(tasks_of(what), effort.repetitions);
        return;
    }
    start_workers(program, far ? other_host() : NULL, tasks, route, pair && !loaded);
    if (strcmp(what, "latency") == 0)
        measure_pair(latency_sizes, COUNT_OF(latency_sizes), 1, effort);
    else if (strcmp(what, "bandwidth") == 0)
        measure_pair(bandwidth_sizes, COUNT_OF(bandwidth_sizes), 0, effort);
    else if (strcmp(what, "arrays") == 0)
        measure_arrays(effort);
    else if (far)
        measure_hosts(effort);
    else if (loaded)
        measure_loaded(what + strlen("loaded-"), effort);
    else if (strcmp(what, "rate") == 0)
        measure_rate(effort);
    else if (strcmp(what, "ring") == 0)
        measure_ring(effort);
    else if (strcmp(what, "mcast") == 0)
        measure("mcast", (struct order){MCAST, 0, MCAST_BYTES, 0}, effort, 1);
    else if (strncmp(what, "idle-", 5) == 0)
        timed((struct order){IDLE, 0, 8, (int)(effort.repetition_us * 1e-3)});
    else if (group)
        measure_group(effort);
    else
        fail("unknown measure");
    end_workers();
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "worker") == 0) {
        worker();
    } else if (argc == 2 && strcmp(argv[1], "spawned") == 0) {
        spawned();
    } else if (argc == 5) {
        struct effort effort = {atof(argv[3]) * 1e3, atoi(argv[4])};
        int route = strcmp(argv[2], "direct") == 0 ? PvmRouteDirect : PvmAllowDirect;
        char program[4096];
        if (!realpath(argv[0], program))
            fail("run me by my path");
        master(program, argv[1], route, effort);
        pvm_exit();
    } else {
        fail("usage: pvm_bench MEASURE default|direct REPETITION_MS REPETITIONS");
    }
    return 0;
}
