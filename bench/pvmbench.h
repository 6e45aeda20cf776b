/* What the members of a crew of `pvm bench` do: the exchanges that are measured, and the same with known data. */
#ifndef HPVM_PVMBENCH_H
#define HPVM_PVMBENCH_H

#include "bench.h"
#include <pvm3.h>
#include <stdarg.h>

#define TAG_RESULT 7
#define TAG_VERDICT 8

/* The most bytes that a sender of the measures with windows has under way, unless one message is longer. */
#define WINDOW_BYTES_MAX (64 << 20)
/* In a series of reductions or gathers, senders could run far ahead of the root. A barrier after this many bytes of
 * each sender, or after this many rounds, bounds the memory of the waiting messages. */
#define AHEAD_BYTES_MAX (32 << 20)
#define AHEAD_ROUNDS_MAX 10000
/* How long the first member comes late to the barrier that is verified. */
#define LATE_US 20000
/* An answer in bytes. */
#define ANSWER_BYTES 8
#define LINE_BYTES_MAX (1 << 20)

/* The names are those of the command `measure`. */
enum work { LATENCY, BANDWIDTH, BIDIRECTIONAL, RATE, BARRIER, BCAST, MCAST, REDUCE, GATHER, SCATTER, WORK_COUNT,
            JOIN = WORK_COUNT, END };
static const char *const work_names[WORK_COUNT] = {
    "latency", "bandwidth", "bidirectional", "rate", "barrier", "bcast", "mcast", "reduce", "gather", "scatter"
};

enum encoding { RAW, DEFAULT, INPLACE, PSEND, ENCODING_COUNT };
static const char *const encoding_names[ENCODING_COUNT] = {"raw", "default", "inplace", "psend"};

/* What the members do next, at the same time. `verify`: once, with known data, which are checked. */
struct order {
    int work, encoding, size, count, verify;
};
#define ORDER_INTS 5

/* This task's rank in the crew (-1: none), the members' tids in the order of the ranks, and the director's tid. */
static struct {
    int rank, count, director;
    int *tids;
    int is_in_group;
    char group[32];
} crew = {.rank = -1};

/* The memory of messages: what a member sends or receives, and, at the root of a gather or scatter, that of all. */
static struct {
    char *data, *all;
    size_t data_bytes, all_bytes;
} room;

/* ---- failures ---- */

/* The texts of PVM's errors, which the library has and its header does not declare. */
extern char *pvm_errlist[];
extern int pvm_nerr;

static const char *text_of(int code)
{
    return code < 0 && -code < pvm_nerr ? pvm_errlist[-code] : "unknown error";
}

/* Reports why this task ends: the director to `pvm bench`, a member to the log of its daemon. */
static void stop(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fputs("error ", stdout);
    vprintf(format, values);
    putchar('\n');
    fflush(stdout);
    va_end(values);
    _exit(1);
}

/* Checks the result of a PVM call that must not fail, and returns it. */
static inline int good(int result, const char *call)
{
    if (result < 0)
        stop("%s failed: %s", call, text_of(result));
    return result;
}

/* ---- memory and cores ---- */

static void make_room(char **start, size_t *has, size_t wants)
{
    if (wants <= *has)
        return;
    free(*start);
    if (posix_memalign((void **)start, 4096, wants) != 0)
        stop("no memory for %zu bytes", wants);
    memset(*start, 1, wants);
    *has = wants;
}

/* Makes the memory that the order needs; before any clock is read. */
static void prepare(struct order order)
{
    size_t size = order.size > ANSWER_BYTES ? order.size : ANSWER_BYTES;
    make_room(&room.data, &room.data_bytes, size);
    if (crew.rank == 0)
        make_room(&room.all, &room.all_bytes, crew.count * (order.work == GATHER || order.work == SCATTER ? size
                                                                                                    : ANSWER_BYTES));
}

/* Pins this process to one of the cores that it may use, or lets it use all of them again (-1). */
static void use_core(int number)
{
    static cpu_set_t all;
    static int is_known;
    if (!is_known && sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    is_known = 1;
    cpu_set_t one;
    CPU_ZERO(&one);
    int left = number < 0 ? -1 : number % CPU_COUNT(&all);
    for (int core = 0; left >= 0 && core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && left-- == 0)
            CPU_SET(core, &one);
    /* Without the right to do so, the measure is only less steady. */
    (void)sched_setaffinity(0, sizeof one, number < 0 ? &all : &one);
}

/* ---- messages ---- */

static inline void send_data(int encoding, int to, int tag, char *data, int size)
{
    static const int numbers[] = {PvmDataRaw, PvmDataDefault, PvmDataInPlace};
    if (encoding == PSEND) {
        good(pvm_psend(to, tag, data, size, PVM_BYTE), "pvm_psend");
        return;
    }
    good(pvm_initsend(numbers[encoding]), "pvm_initsend");
    if (encoding == DEFAULT && size % sizeof(int) == 0)
        good(pvm_pkint((int *)data, size / (int)sizeof(int), 1), "pvm_pkint");
    else
        good(pvm_pkbyte(data, size, 1), "pvm_pkbyte");
    good(pvm_send(to, tag), "pvm_send");
}

static inline void receive_data(int encoding, int from, int tag, char *data, int size)
{
    if (encoding == PSEND) {
        int sender, its_tag, length;
        good(pvm_precv(from, tag, data, size, PVM_BYTE, &sender, &its_tag, &length), "pvm_precv");
        if (length != size)
            stop("pvm_precv received %d bytes instead of %d", length, size);
        return;
    }
    good(pvm_recv(from, tag), "pvm_recv");
    if (encoding == DEFAULT && size % sizeof(int) == 0)
        good(pvm_upkint((int *)data, size / (int)sizeof(int), 1), "pvm_upkint");
    else
        good(pvm_upkbyte(data, size, 1), "pvm_upkbyte");
}

static void send_ints(int to, int tag, int *numbers, int count)
{
    good(pvm_initsend(PvmDataDefault), "pvm_initsend");
    good(pvm_pkint(numbers, count, 1), "pvm_pkint");
    good(pvm_send(to, tag), "pvm_send");
}

static void receive_ints(int from, int tag, int *numbers, int count)
{
    good(pvm_recv(from, tag), "pvm_recv");
    good(pvm_upkint(numbers, count, 1), "pvm_upkint");
}

/* ---- the work of the members; rank 0 keeps the time ---- */

static void ping(struct order order)
{
    int peer = crew.tids[1 - crew.rank];
    for (int i = 0; i < order.count; i++) {
        if (crew.rank == 0) {
            send_data(order.encoding, peer, TAG_DATA, room.data, order.size);
            receive_data(order.encoding, peer, TAG_DATA, room.data, order.size);
        } else {
            receive_data(order.encoding, peer, TAG_DATA, room.data, order.size);
            send_data(order.encoding, peer, TAG_DATA, room.data, order.size);
        }
    }
}

/* Returns how many messages a sender sends before it waits. */
static int window_of(int size)
{
    int window = WINDOW_BYTES_MAX / (size > 0 ? size : 1);
    return window < 1 ? 1 : window < WINDOW_MESSAGES ? window : WINDOW_MESSAGES;
}

static void windows(struct order order)
{
    int peer = crew.tids[1 - crew.rank], window = window_of(order.size);
    for (int round = 0; round < order.count; round++) {
        if (crew.rank == 0) {
            for (int i = 0; i < window; i++)
                send_data(order.encoding, peer, TAG_DATA, room.data, order.size);
            receive_data(order.encoding, peer, TAG_ANSWER, room.data, 4);
        } else {
            for (int i = 0; i < window; i++)
                receive_data(order.encoding, peer, TAG_DATA, room.data, order.size);
            send_data(order.encoding, peer, TAG_ANSWER, room.data, 4);
        }
    }
}

/* Both members send a window, and receive one. */
static void windows_both_ways(struct order order)
{
    int peer = crew.tids[1 - crew.rank], window = window_of(order.size);
    for (int round = 0; round < order.count; round++) {
        for (int i = 0; i < window; i++)
            send_data(order.encoding, peer, TAG_DATA, room.data, order.size);
        for (int i = 0; i < window; i++)
            receive_data(order.encoding, peer, TAG_DATA, room.data, order.size);
    }
}

static int root(void)
{
    return good(pvm_getinst(crew.group, crew.tids[0]), "pvm_getinst");
}

static void barrier(void)
{
    good(pvm_barrier(crew.group, crew.count), "pvm_barrier");
}

static void reduce(int instance, int size)
{
    good(pvm_reduce(PvmSum, room.data, size / (int)sizeof(double), PVM_DOUBLE, TAG_DATA, crew.group, instance),
         "pvm_reduce");
}

static void gather(int instance, int size)
{
    good(pvm_gather(room.all, room.data, size, PVM_BYTE, TAG_ANSWER, crew.group, instance), "pvm_gather");
}

static void scatter(int instance, int size)
{
    good(pvm_scatter(room.data, room.all, size, PVM_BYTE, TAG_DATA, crew.group, instance), "pvm_scatter");
}

static void collect(struct order order)
{
    int instance = root(), bound = AHEAD_BYTES_MAX / order.size;
    bound = bound < 1 ? 1 : bound > AHEAD_ROUNDS_MAX ? AHEAD_ROUNDS_MAX : bound;
    for (int round = 0; round < order.count; round++) {
        renew(room.data, order.size, round);
        (order.work == REDUCE ? reduce : gather)(instance, order.size);
        if ((round + 1) % bound == 0)
            barrier();
    }
}

/* The root gives each member its share, and gathers a short answer. */
static void distribute(struct order order)
{
    int instance = root();
    for (int i = 0; i < order.count; i++) {
        scatter(instance, order.size);
        gather(instance, ANSWER_BYTES);
    }
}

/* Rank 0 sends one message to all others. */
static void send_all(struct order order)
{
    int encoding = order.encoding == PSEND ? RAW : order.encoding;
    static const int numbers[] = {PvmDataRaw, PvmDataDefault, PvmDataInPlace};
    if (crew.rank != 0) {
        receive_data(encoding, crew.tids[0], TAG_DATA, room.data, order.size);
        return;
    }
    good(pvm_initsend(numbers[encoding]), "pvm_initsend");
    if (encoding == DEFAULT && order.size % sizeof(int) == 0)
        good(pvm_pkint((int *)room.data, order.size / (int)sizeof(int), 1), "pvm_pkint");
    else
        good(pvm_pkbyte(room.data, order.size, 1), "pvm_pkbyte");
    if (order.work == BCAST)
        good(pvm_bcast(crew.group, TAG_DATA), "pvm_bcast");
    else
        good(pvm_mcast(crew.tids + 1, crew.count - 1, TAG_DATA), "pvm_mcast");
}

static void broadcast(struct order order)
{
    int instance = root();
    for (int i = 0; i < order.count; i++) {
        send_all(order);
        gather(instance, ANSWER_BYTES);
    }
}

static void multicast(struct order order)
{
    for (int i = 0; i < order.count; i++) {
        send_all(order);
        if (crew.rank != 0)
            send_data(RAW, crew.tids[0], TAG_ANSWER, room.data, ANSWER_BYTES);
        for (int member = 1; crew.rank == 0 && member < crew.count; member++)
            receive_data(RAW, -1, TAG_ANSWER, room.data, ANSWER_BYTES);
    }
}

static void join(void)
{
    snprintf(crew.group, sizeof crew.group, "pvmbench.%x", crew.tids[0]);
    good(pvm_joingroup(crew.group), "pvm_joingroup");
    barrier();
}

static void perform(struct order order)
{
    switch (order.work) {
    case LATENCY: ping(order); break;
    case BANDWIDTH:
    case RATE: windows(order); break;
    case BIDIRECTIONAL: windows_both_ways(order); break;
    case BARRIER:
        for (int i = 0; i < order.count; i++)
            barrier();
        break;
    case BCAST: broadcast(order); break;
    case MCAST: multicast(order); break;
    case REDUCE:
    case GATHER: collect(order); break;
    case SCATTER: distribute(order); break;
    case JOIN: join(); break;
    }
}

/* ---- the same with known data: each returns how many bytes were right before the first wrong one, or -1 ---- */

static int right_bytes(const char *data, int size, int seed)
{
    for (int place = 0; place < size; place++)
        if ((unsigned char)data[place] != pattern_at(place, seed))
            return place;
    return -1;
}

/* Each of the two members sends data of its own, and no member holds what it is to receive. */
static int verify_pair(struct order order)
{
    int peer = crew.tids[1 - crew.rank], verdict = -1;
    for (int turn = 0; turn < 2; turn++) {
        if (turn == crew.rank) {
            fill(room.data, order.size, turn + 1);
            send_data(order.encoding, peer, TAG_DATA, room.data, order.size);
        } else {
            memset(room.data, 0, order.size);
            receive_data(order.encoding, peer, TAG_DATA, room.data, order.size);
            verdict = right_bytes(room.data, order.size, turn + 1);
        }
    }
    return verdict;
}

/* Rank 0 comes late; nobody may have passed the barrier before. */
static int verify_barrier(double since)
{
    if (crew.rank == 0)
        usleep(LATE_US);
    barrier();
    return now_us() - since < LATE_US ? 0 : -1;
}

static int verify_collective(struct order order)
{
    int size = order.size, own = pvm_getinst(crew.group, pvm_mytid()), verdict = -1;
    int instance = order.work == MCAST ? 0 : root();
    if (order.work == REDUCE) {
        double number = crew.rank + 1, sum = crew.count * (crew.count + 1) / 2;
        for (size_t i = 0; i < size / sizeof number; i++)
            memcpy(room.data + i * sizeof number, &number, sizeof number);
        reduce(instance, size);
        for (size_t i = 0; crew.rank == 0 && verdict < 0 && i < size / sizeof sum; i++)
            if (memcmp(room.data + i * sizeof sum, &sum, sizeof sum) != 0)
                verdict = i * sizeof sum;
    } else if (order.work == GATHER) {
        fill(room.data, size, own);
        gather(instance, size);
        for (int member = 0; crew.rank == 0 && verdict < 0 && member < crew.count; member++)
            verdict = right_bytes(room.all + (size_t)member * size, size, member);
    } else if (order.work == SCATTER) {
        for (int member = 0; crew.rank == 0 && member < crew.count; member++)
            fill(room.all + (size_t)member * size, size, member);
        memset(room.data, 0, size);
        scatter(instance, size);
        verdict = right_bytes(room.data, size, own);
    } else {
        memset(room.data, 0, size);
        if (crew.rank == 0)
            fill(room.data, size, 1);
        send_all(order);
        verdict = right_bytes(room.data, size, 1);
    }
    return verdict;
}

static int verify(struct order order, double since)
{
    if (order.work <= RATE)
        return verify_pair(order);
    return order.work == BARRIER ? verify_barrier(since) : verify_collective(order);
}

#endif
