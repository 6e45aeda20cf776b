/* The experiments of `cargo xtask papers` on any PVM: compiled once, run on every libpvm3 through LD_LIBRARY_PATH.
 *
 *   papers pair|fmp ROUTE here|there EXCHANGES REPETITION_MS REPETITIONS SIZE...
 *   papers barrier ROUTE pvm_barrier|pvm_lanbarr TASKS BARRIERS REPETITIONS
 *   papers collect ROUTE TASKS DOUBLES MESSAGES WAIT_US none|program|library REPETITIONS
 *   papers copies ROUTE here|there SIZE MESSAGES
 *   papers mcast ROUTE WAY TASKS TRIALS REPETITION_MS REPETITIONS SIZE...
 *
 * pair: ping-pong in all forms, with a task on this host or on another one; EXCHANGES round trips in a repetition, or
 * as many as REPETITION_MS needs if EXCHANGES is 0. barrier: the time of a barrier, and how far apart the members
 * leave it. collect: all other tasks send doubles to the master at the same time; who waits before each send (nobody,
 * the program, or the library with PvmBackoff): task n waits n times WAIT_US. copies: how often the libraries of sender
 * and receiver copy each byte of a message, in all forms (hpvm alone counts this). mcast: a multicast and a short answer
 * from each task; WAY is a value of PvmMcastRoute, or 0; TRIALS multicasts of each size are not measured.
 *
 * The master is the first task, and starts the others on the other hosts, one on each. Each line of the output is
 * `name size value unit`.
 */
#include "bench.h"
#include <dlfcn.h>
#include <limits.h>
#include <pvm3.h>

#define TASKS_MAX 64
#define GROUP "papers"
/* An option of hpvm for pvm_getopt: how many KiB this process has copied. */
#define OPTION_KIB_COPIED 1002
/* Barriers before the measured ones. */
#define WARM_BARRIERS 20
#define TAG_STAMPS 7
#define TAG_GO 8

/* FMP is not a form of PVM: only hpvm has it, beside PVM. */
enum form { PSEND, RAW, IN_PLACE, DEFAULT, FORM_COUNT, FMP = FORM_COUNT };
static const char *const form_names[FORM_COUNT] = {"psend", "raw", "in_place", "default"};

enum work { PING, JOIN, BARRIER, LAN_BARRIER, COLLECT, COPIES, MCAST, END };
enum waits { NOBODY, PROGRAM, LIBRARY };

/* The work that all tasks do next. */
struct order {
    int work, form, size, count, wait_us, waits;
};
#define ORDER_INTS ((int)(sizeof(struct order) / sizeof(int)))

static struct {
    int rank, tasks, way;
    int tids[TASKS_MAX];
} here;

static char *data;
/* When this task left each barrier. */
static double *stamps;

static int must(int result, const char *call)
{
    if (result < 0) {
        fprintf(stderr, "papers: %s gave %d\n", call, result);
        exit(1);
    }
    return result;
}

static struct {
    int (*send)(int, int, const void *, size_t);
    int (*receive)(int, int, void *, size_t, void *);
} fmp;

/* Finds the functions of libfmp (fmp.h), which this program is not linked with, so that it runs on PVM 3.4.6 too. */
static void load_fmp(void)
{
    void *library = dlopen("libfmp.so.1", RTLD_NOW);
    if (!library)
        fail(dlerror());
    *(void **)&fmp.send = dlsym(library, "fmp_send");
    *(void **)&fmp.receive = dlsym(library, "fmp_receive");
    if (!fmp.send || !fmp.receive)
        fail("libfmp lacks a function");
}

/* The default encoding converts integers on PVM 3.4.6; a single byte is never converted. */
static int is_of_ints(int form, int size)
{
    return form == DEFAULT && size % (int)sizeof(int) == 0;
}

static void send_form(int form, int to, int tag, char *from, int size)
{
    static const int encodings[FORM_COUNT] = {PvmDataRaw, PvmDataRaw, PvmDataInPlace, PvmDataDefault};
    if (form == FMP) {
        must(fmp.send(to, tag, from, size), "fmp_send");
        return;
    }
    if (form == PSEND) {
        must(pvm_psend(to, tag, from, size, PVM_BYTE), "pvm_psend");
        return;
    }
    must(pvm_initsend(encodings[form]), "pvm_initsend");
    if (is_of_ints(form, size))
        must(pvm_pkint((int *)from, size / (int)sizeof(int), 1), "pvm_pkint");
    else
        must(pvm_pkbyte(from, size, 1), "pvm_pkbyte");
    must(pvm_send(to, tag), "pvm_send");
}

static void receive_form(int form, int from, int tag, char *to, int size)
{
    int sender, its_tag, length;
    if (form == FMP) {
        must(fmp.receive(from, tag, to, size, NULL), "fmp_receive");
        return;
    }
    if (form == PSEND) {
        must(pvm_precv(from, tag, to, size, PVM_BYTE, &sender, &its_tag, &length), "pvm_precv");
        if (length != size)
            fail("pvm_precv gave another length");
        return;
    }
    must(pvm_recv(from, tag), "pvm_recv");
    if (is_of_ints(form, size))
        must(pvm_upkint((int *)to, size / (int)sizeof(int), 1), "pvm_upkint");
    else
        must(pvm_upkbyte(to, size, 1), "pvm_upkbyte");
}

/* ---- what the tasks do; rank 0 is the master ---- */

static void ping(struct order order)
{
    if (order.form == FMP && !fmp.send)
        load_fmp();
    int peer = here.tids[1 - here.rank];
    for (int i = 0; i < order.count; i++) {
        if (here.rank == 0)
            send_form(order.form, peer, TAG_DATA, data, order.size);
        receive_form(order.form, peer, TAG_DATA, data, order.size);
        if (here.rank != 0)
            send_form(order.form, peer, TAG_DATA, data, order.size);
    }
}

/* The master is a member before: if several tasks of PVM 3.4.6 use groups first at the same time, each may start a
 * group server. */
static void join(void)
{
    if (here.rank != 0)
        must(pvm_joingroup(GROUP), "pvm_joingroup");
    must(pvm_barrier(GROUP, here.tasks), "pvm_barrier");
}

#ifdef PvmMcastRoute
/* Weak, so that the program also starts on PVM 3.4.6 if its linker binds all functions at the start. */
#pragma weak pvm_lanbarr
#endif

static int lan_barrier(void)
{
#ifdef PvmMcastRoute
    return pvm_lanbarr(GROUP, here.tasks);
#else
    fail("PVM 3.4.6 has no pvm_lanbarr");
    return PvmNotImpl;
#endif
}

static void barriers(struct order order)
{
    for (int i = 0; i < order.count; i++) {
        if (order.work == LAN_BARRIER)
            must(lan_barrier(), "pvm_lanbarr");
        else
            must(pvm_barrier(GROUP, here.tasks), "pvm_barrier");
        stamps[i] = now_us();
    }
    if (here.rank != 0)
        send_form(RAW, here.tids[0], TAG_STAMPS, (char *)stamps, order.count * (int)sizeof *stamps);
}

/* All tasks begin when the master says so, and send to it. */
static void collect(struct order order)
{
    int size = order.size * (int)sizeof(double);
    if (here.rank == 0) {
        must(pvm_initsend(PvmDataRaw), "pvm_initsend");
        must(pvm_mcast(here.tids + 1, here.tasks - 1, TAG_GO), "pvm_mcast");
        for (int i = 0; i < order.count * (here.tasks - 1); i++)
            receive_form(RAW, -1, TAG_DATA, data, size);
        return;
    }
#ifdef PvmBackoff
    static int is_member;
    if (order.waits == LIBRARY) {
        if (!is_member)
            must(pvm_joingroup(GROUP), "pvm_joingroup");
        is_member = 1;
        must(pvm_setopt(PvmBackoff, order.wait_us), "pvm_setopt");
    }
#endif
    must(pvm_recv(here.tids[0], TAG_GO), "pvm_recv");
    for (int i = 0; i < order.count; i++) {
        if (order.waits == PROGRAM)
            usleep((useconds_t)order.wait_us * (here.rank - 1));
        send_form(RAW, here.tids[0], TAG_DATA, data, size);
    }
#ifdef PvmBackoff
    if (order.waits == LIBRARY)
        pvm_setopt(PvmBackoff, 0);
#endif
}

/* Sends messages one way, and reports the KiB that the libraries of both tasks have copied. */
static void copies(struct order order)
{
    int before = must(pvm_getopt(OPTION_KIB_COPIED), "pvm_getopt"), after, theirs;
    double all = (double)order.size * order.count / 1024;
    char name[64];
    for (int i = 0; i < order.count; i++) {
        if (here.rank == 0) {
            send_form(order.form, here.tids[1], TAG_DATA, data, order.size);
            receive_form(RAW, here.tids[1], TAG_ANSWER, (char *)stamps, 8);
        } else {
            receive_form(order.form, here.tids[0], TAG_DATA, data, order.size);
            send_form(RAW, here.tids[0], TAG_ANSWER, (char *)stamps, 8);
        }
    }
    after = must(pvm_getopt(OPTION_KIB_COPIED), "pvm_getopt") - before;
    if (here.rank != 0) {
        send_form(RAW, here.tids[0], TAG_STAMPS, (char *)&after, sizeof after);
        return;
    }
    receive_form(RAW, here.tids[1], TAG_STAMPS, (char *)&theirs, sizeof theirs);
    if (order.count < 2)
        return;
    snprintf(name, sizeof name, "%s/sender", form_names[order.form]);
    report(name, order.size, after / all, "copies");
    snprintf(name, sizeof name, "%s/receiver", form_names[order.form]);
    report(name, order.size, theirs / all, "copies");
}

static void multicast(struct order order)
{
    for (int i = 0; i < order.count; i++) {
        if (here.rank == 0) {
            must(pvm_initsend(PvmDataRaw), "pvm_initsend");
            must(pvm_pkbyte(data, order.size, 1), "pvm_pkbyte");
            must(pvm_mcast(here.tids + 1, here.tasks - 1, TAG_DATA), "pvm_mcast");
            for (int rank = 1; rank < here.tasks; rank++)
                receive_form(RAW, -1, TAG_ANSWER, (char *)stamps, 8);
        } else {
            receive_form(RAW, here.tids[0], TAG_DATA, data, order.size);
            send_form(RAW, here.tids[0], TAG_ANSWER, (char *)stamps, 8);
        }
    }
}

static void perform(struct order order)
{
    switch (order.work) {
    case PING: ping(order); break;
    case JOIN: join(); break;
    case BARRIER:
    case LAN_BARRIER: barriers(order); break;
    case COLLECT: collect(order); break;
    case COPIES: copies(order); break;
    case MCAST: multicast(order); break;
    }
}

/* Makes room for the data of a message. */
static void reserve(int bytes)
{
    static int reserved;
    if (bytes <= reserved)
        return;
    free(data);
    data = memory(bytes);
    reserved = bytes;
}

static int bytes_of(struct order order)
{
    return order.work == COLLECT ? order.size * (int)sizeof(double) : order.size;
}

/* ---- worker ---- */

static void worker(void)
{
    int parent = must(pvm_parent(), "pvm_parent"), setup[4];
    must(pvm_recv(parent, TAG_SETUP), "pvm_recv");
    must(pvm_upkint(setup, 4, 1), "pvm_upkint");
    here.rank = setup[0];
    here.tasks = setup[1];
    must(pvm_upkint(here.tids, here.tasks, 1), "pvm_upkint");
    pvm_setopt(PvmRoute, setup[2]);
    if (setup[3])
        pin_to_core(here.rank);
    stamps = memory(8192 * sizeof *stamps);
    for (;;) {
        struct order order;
        must(pvm_recv(parent, TAG_ORDER), "pvm_recv");
        must(pvm_upkint((int *)&order, ORDER_INTS, 1), "pvm_upkint");
        if (order.work == END)
            break;
        reserve(bytes_of(order));
        send_form(RAW, parent, TAG_READY, (char *)stamps, 0);
        perform(order);
    }
    pvm_exit();
}

/* ---- master ---- */

static void start_workers(char *program, int tasks, int is_here, int route, int pinned)
{
    struct pvmhostinfo *hosts;
    int count, own = must(pvm_mytid(), "pvm_mytid"), next = 0;
    char *arguments[] = {"worker", NULL};
    must(pvm_config(&count, NULL, &hosts), "pvm_config");
    here.tasks = tasks;
    here.tids[0] = own;
    for (int rank = 1; rank < tasks; rank++) {
        while (!is_here && next < count && hosts[next].hi_tid == pvm_tidtohost(own))
            next++;
        if (!is_here && next == count)
            fail("too few hosts");
        char *host = ".";
        if (!is_here)
            host = hosts[next++].hi_name;
        if (pvm_spawn(program, arguments, PvmTaskHost, host, 1, here.tids + rank) != 1)
            fail("cannot start a task");
    }
    if (tasks > 1)
        must(pvm_notify(PvmTaskExit, TAG_END, tasks - 1, here.tids + 1), "pvm_notify");
    for (int rank = 1; rank < tasks; rank++) {
        int setup[4] = {rank, tasks, route, pinned};
        must(pvm_initsend(PvmDataDefault), "pvm_initsend");
        pvm_pkint(setup, 4, 1);
        pvm_pkint(here.tids, tasks, 1);
        must(pvm_send(here.tids[rank], TAG_SETUP), "pvm_send");
    }
    pvm_setopt(PvmRoute, route);
    if (pinned)
        pin_to_core(0);
    stamps = memory(8192 * sizeof *stamps);
}

/* Executes an order with all tasks; returns the time in us since all were ready. */
static double timed(struct order order)
{
    reserve(bytes_of(order));
    for (int rank = 1; rank < here.tasks; rank++) {
        must(pvm_initsend(PvmDataDefault), "pvm_initsend");
        must(pvm_pkint((int *)&order, ORDER_INTS, 1), "pvm_pkint");
        must(pvm_send(here.tids[rank], TAG_ORDER), "pvm_send");
    }
    for (int rank = 1; rank < here.tasks && order.work != END; rank++)
        receive_form(RAW, here.tids[rank], TAG_READY, (char *)stamps, 0);
    double start = now_us();
    if (order.work != END)
        perform(order);
    return now_us() - start;
}

static void end_workers(void)
{
    timed((struct order){.work = END});
    for (int rank = 1; rank < here.tasks; rank++)
        must(pvm_recv(-1, TAG_END), "pvm_recv");
}

/* Makes one exchange with known data, so that a fast but wrong library does not win. */
static void prove(struct order order)
{
    reserve(bytes_of(order));
    fill(data, bytes_of(order), order.form + 1);
    order.count = 1;
    timed(order);
    check(data, bytes_of(order), order.form + 1);
}

/* Repeats the order; reports the time of one exchange in us, multiplied by `scale`. */
static void repeat(const char *name, struct order order, int repetitions, double scale)
{
    for (int i = 0; i < repetitions; i++)
        report(name, order.size, timed(order) / order.count * scale, "us");
}

/* Finds out, by some exchanges, how many exchanges a repetition has, and repeats the order. */
static void measure_after(int trials, const char *name, struct order order, struct effort effort, double scale)
{
    order.count = trials;
    double elapsed = timed(order);
    if (elapsed < effort.repetition_us / 4) {
        order.count = exchanges_for((struct effort){effort.repetition_us / 4, 1}, elapsed, order.count);
        elapsed = timed(order);
    }
    order.count = exchanges_for(effort, elapsed, order.count);
    repeat(name, order, effort.repetitions, scale);
}

/* Repeats the order with this number of exchanges, or with as many as a repetition needs. */
static void measure(const char *name, struct order order, int exchanges, struct effort effort, double scale)
{
    if (exchanges == 0) {
        measure_after(TRIAL_EXCHANGES, name, order, effort, scale);
        return;
    }
    order.count = exchanges;
    timed(order);
    repeat(name, order, effort.repetitions, scale);
}

static void pair(char **sizes, int size_count, int exchanges, struct effort effort)
{
    for (int s = 0; s < size_count; s++) {
        for (int form = 0; form < FORM_COUNT; form++) {
            struct order order = {.work = PING, .form = form, .size = atoi(sizes[s])};
            prove(order);
            measure(form_names[form], order, exchanges, effort, 0.5);
        }
    }
}

/* The same on the layer below PVM. */
static void pair_of_fmp(char **sizes, int size_count, int exchanges, struct effort effort)
{
    for (int s = 0; s < size_count; s++) {
        struct order order = {.work = PING, .form = FMP, .size = atoi(sizes[s])};
        prove(order);
        measure("fmp", order, exchanges, effort, 0.5);
    }
}

static int is_less(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return difference < 0 ? -1 : difference > 0;
}

/* Reports the time of a barrier, and of the spreads (from the first to the last release of one barrier) the median and
 * the largest. */
static void one_barrier_run(int work, int count)
{
    double *first = memory(count * sizeof *first), *last = memory(count * sizeof *last);
    double *theirs = memory(count * sizeof *theirs), start = now_us();
    timed((struct order){.work = work, .count = count});
    memcpy(first, stamps, count * sizeof *first);
    memcpy(last, stamps, count * sizeof *last);
    for (int rank = 1; rank < here.tasks; rank++) {
        receive_form(RAW, here.tids[rank], TAG_STAMPS, (char *)theirs, count * (int)sizeof *theirs);
        for (int i = 0; i < count; i++) {
            first[i] = theirs[i] < first[i] ? theirs[i] : first[i];
            last[i] = theirs[i] > last[i] ? theirs[i] : last[i];
        }
    }
    if (last[0] < start)
        fail("the hosts have different clocks");
    report("barrier", here.tasks, (stamps[count - 1] - stamps[0]) / (count - 1), "us");
    for (int i = 0; i < count; i++)
        last[i] -= first[i];
    qsort(last, count, sizeof *last, is_less);
    report("spread", here.tasks, last[count / 2], "us");
    report("spread_largest", here.tasks, last[count - 1], "us");
    free(first);
    free(last);
    free(theirs);
}

static void measure_barrier(int work, int count, int repetitions)
{
    must(pvm_joingroup(GROUP), "pvm_joingroup");
    timed((struct order){.work = JOIN});
    timed((struct order){.work = work, .count = WARM_BARRIERS});
    for (int rank = 1; rank < here.tasks; rank++)
        must(pvm_recv(here.tids[rank], TAG_STAMPS), "pvm_recv");
    for (int i = 0; i < repetitions; i++)
        one_barrier_run(work, count);
}

static void measure_collect(struct order order, int repetitions)
{
    /* Connections are made, and the tasks become members of their group, before the measured time. */
    struct order warm = order;
    warm.size = warm.count = 1;
    warm.wait_us = 0;
    timed(warm);
    for (int i = 0; i < repetitions; i++)
        report("collect", here.tasks - 1, timed(order) * 1e-3, "ms");
}

static void measure_copies(int size, int messages)
{
    for (int form = 0; form < FORM_COUNT; form++) {
        struct order order = {.work = COPIES, .form = form, .size = size, .count = 1};
        timed(order);
        order.count = messages;
        timed(order);
    }
}

static void measure_mcast(char **sizes, int size_count, int trials, struct effort effort)
{
    for (int s = 0; s < size_count; s++)
        measure_after(trials, "mcast", (struct order){.work = MCAST, .size = atoi(sizes[s])}, effort, 1);
}

static int number_of(const char *name)
{
    return strcmp(name, "program") == 0 ? PROGRAM : strcmp(name, "library") == 0 ? LIBRARY : NOBODY;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "worker") == 0) {
        worker();
        return 0;
    }
    char program[PATH_MAX];
    if (argc < 6)
        fail("usage: papers pair|fmp|barrier|collect|copies|mcast ROUTE ...");
    if (!realpath(argv[0], program))
        fail("run me by my path");
    int route = strcmp(argv[2], "direct") == 0 ? PvmRouteDirect : PvmAllowDirect;
    if (strcmp(argv[1], "pair") == 0 && argc > 7) {
        start_workers(program, 2, strcmp(argv[3], "here") == 0, route, 1);
        pair(argv + 7, argc - 7, atoi(argv[4]), (struct effort){atof(argv[5]) * 1e3, atoi(argv[6])});
    } else if (strcmp(argv[1], "barrier") == 0 && argc == 7) {
        start_workers(program, atoi(argv[4]), 0, route, 0);
        measure_barrier(strcmp(argv[3], "pvm_lanbarr") == 0 ? LAN_BARRIER : BARRIER, atoi(argv[5]), atoi(argv[6]));
    } else if (strcmp(argv[1], "collect") == 0 && argc == 9) {
        start_workers(program, atoi(argv[3]), 0, route, 0);
        measure_collect((struct order){COLLECT, RAW, atoi(argv[4]), atoi(argv[5]), atoi(argv[6]), number_of(argv[7])},
                        atoi(argv[8]));
    } else if (strcmp(argv[1], "fmp") == 0 && argc > 7) {
        start_workers(program, 2, strcmp(argv[3], "here") == 0, route, 1);
        pair_of_fmp(argv + 7, argc - 7, atoi(argv[4]), (struct effort){atof(argv[5]) * 1e3, atoi(argv[6])});
    } else if (strcmp(argv[1], "copies") == 0 && argc == 6) {
        start_workers(program, 2, strcmp(argv[3], "here") == 0, route, 1);
        measure_copies(atoi(argv[4]), atoi(argv[5]));
    } else if (strcmp(argv[1], "mcast") == 0 && argc > 8) {
        here.way = atoi(argv[3]);
#ifdef PvmMcastRoute
        if (here.way != 0)
            must(pvm_setopt(PvmMcastRoute, here.way), "pvm_setopt");
#endif
        start_workers(program, atoi(argv[4]), 0, route, 0);
        struct effort effort = {atof(argv[6]) * 1e3, atoi(argv[7])};
        measure_mcast(argv + 8, argc - 8, atoi(argv[5]), effort);
    } else {
        fail("wrong arguments");
    }
    end_workers();
    pvm_exit();
    return 0;
}
