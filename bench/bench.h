/* The common parts of the benchmark programs: clock, pinning to cores, repetitions, output.
 *
 * Every program prints one line per repetition, `name size value unit`, to standard output; the runner (`cargo
 * xtask bench`) collects the lines of all systems and takes medians. A program that finds wrong data reports it
 * on standard error and exits with status 1.
 */
#ifndef HPVM_BENCH_H
#define HPVM_BENCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The tags of messages. */
#define TAG_SETUP 1
#define TAG_ORDER 2
#define TAG_READY 3
#define TAG_DATA 4
#define TAG_ANSWER 5
#define TAG_END 6
/* The longest message of any measure, in bytes. */
#define MESSAGE_BYTES_MAX (64 << 20)
/* The longest message of the measure "arrays", in bytes. */
#define ARRAY_BYTES_MAX (64 << 20)
/* Messages that a sender sends before it waits for a short answer. */
#define WINDOW_MESSAGES 64
/* Exchanges before the measured ones, which make connections and routes and fill page tables and caches. */
#define WARM_EXCHANGES 20
/* The same for messages of 1 MiB and more. */
#define WARM_EXCHANGES_LONG 3
/* Exchanges by which the time of one is estimated, for measures where `WARM_EXCHANGES` would take too long. */
#define TRIAL_EXCHANGES 3
/* Collective operations warm up for this time, in us, but with at most this number of exchanges (as many as the OSU
 * benchmarks make for short messages). Meanwhile connections are made, and hpvm tries the ways of a multicast: so long ones
 * make some exchanges in any case, if these take no longer than the second time. */
#define COLLECTIVE_WARM_US 50e3
#define COLLECTIVE_WARM_LONG_US 1e6
#define COLLECTIVE_WARM_EXCHANGES_MIN 20
#define COLLECTIVE_WARM_EXCHANGES 200
/* The most exchanges in a repetition. */
#define EXCHANGES_MAX 1e8

static const int latency_sizes[] = {8, 64, 512, 4096, 16384};
static const int bandwidth_sizes[] = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
/* Longer messages are sent by pvm_psend alone: Debian's PVM takes a quarter of a second for the other forms. */
#define PACKED_BYTES_MAX (16 << 20)
/* The sizes of messages that are compared with arrays of Python. */
static const int array_sizes[] = {1 << 20, 4 << 20, 16 << 20, 64 << 20};
/* The sizes of messages between two hosts. */
static const int hosts_sizes[] = {8, 1 << 20, 16 << 20};
/* The sizes of messages while other processes use the cores. */
static const int loaded_sizes[] = {8, 64, 4096, 64 << 10};
static const int ring_sizes[] = {8, 4096};
/* The sizes of a task's share in a reduction (doubles that are added) and in a gather, in bytes. */
static const int reduce_sizes[] = {8, 1 << 20};
static const int gather_sizes[] = {8, 64 << 10};
/* The sizes of a broadcast, in bytes. */
static const int bcast_sizes[] = {8, 64 << 10, 1 << 20};
/* The short program that is started many times, and how often. */
#define TRUE_PROGRAM "/bin/true"
#define TRUE_COUNT 1000
/* The sizes of a broadcast inside a host, and of each task's part of a scatter, in bytes. */
static const int local_bcast_sizes[] = {64 << 10, 1 << 20};
static const int scatter_sizes[] = {64 << 10};
#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* How long one repetition of a measure lasts, and how many repetitions one run of the program makes. */
struct effort {
    double repetition_us;
    int repetitions;
};

static inline double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

/* User and system time of this process so far, in us. */
static inline double cpu_us(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6
        + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

static inline void fail(const char *what)
{
    fprintf(stderr, "bench: %s\n", what);
    exit(1);
}

/* Pins the process to one core; the same core for all systems. */
static inline void pin_to_core(int core)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core % (int)sysconf(_SC_NPROCESSORS_ONLN), &cores);
    if (sched_setaffinity(0, sizeof cores, &cores) != 0)
        fail("cannot pin to a core");
}

/* Returns the name of a measure with the size appended, for measures whose reported number is that of the
 * tasks. */
static inline const char *name_of(const char *measure, int size)
{
    static char name[64];
    snprintf(name, sizeof name, "%s_%d", measure, size);
    return name;
}

/* Returns the name of a measure that is taken while this number of other processes use the cores. */
static inline const char *loaded_name(const char *beside, const char *form)
{
    static char name[64];
    snprintf(name, sizeof name, "loaded%s_%s", beside, form);
    return name;
}

/* Returns the number at the end of the name of a measure such as "idle-32"; 0 if there is none. */
static inline int tasks_of(const char *measure)
{
    const char *number = strchr(measure, '-');
    return number ? atoi(number + 1) : 0;
}

static inline void report(const char *name, int size, double value, const char *unit)
{
    printf("%s %d %.6g %s\n", name, size, value, unit);
    fflush(stdout);
}

static inline void *memory(size_t bytes)
{
    void *start = NULL;
    if (posix_memalign(&start, 4096, bytes) != 0)
        fail("no memory");
    memset(start, 1, bytes);
    return start;
}

static inline int warm_exchanges(int size)
{
    return size < (1 << 20) ? WARM_EXCHANGES : WARM_EXCHANGES_LONG;
}

/* Returns how many exchanges of a collective operation make the rest of its warm-up, if `count` of them took `elapsed_us`. */
static inline int collective_warm_exchanges(double elapsed_us, int count)
{
    double per_us = count / (elapsed_us > 0.01 ? elapsed_us : 0.01);
    double most = COLLECTIVE_WARM_LONG_US * per_us, exchanges = COLLECTIVE_WARM_US * per_us;
    if (exchanges < COLLECTIVE_WARM_EXCHANGES_MIN)
        exchanges = most < COLLECTIVE_WARM_EXCHANGES_MIN ? most : COLLECTIVE_WARM_EXCHANGES_MIN;
    return exchanges > COLLECTIVE_WARM_EXCHANGES ? COLLECTIVE_WARM_EXCHANGES : (int)exchanges;
}

/* Returns how many exchanges fill a repetition, if `count` of them took `elapsed_us`. */
static inline int exchanges_for(struct effort effort, double elapsed_us, int count)
{
    double exchanges = effort.repetition_us * count / (elapsed_us > 0.01 ? elapsed_us : 0.01);
    if (exchanges > EXCHANGES_MAX)
        exchanges = EXCHANGES_MAX;
    return exchanges < 1 ? 1 : (int)exchanges;
}

/* Writes new numbers into the data, as a program does between two collective calls. Without this the data would
 * stay in the cache of the process that read them last, and its later reads of another process's memory would
 * cost nothing. */
static inline void renew(char *data, int size, int round)
{
    double line[8];
    int lines = size / (int)sizeof line;
    for (int i = 0; i < COUNT_OF(line); i++)
        line[i] = round + i;
    for (int i = 0; i < lines; i++)
        memcpy(data + i * sizeof line, line, sizeof line);
    memcpy(data + lines * sizeof line, line, size % sizeof line);
}

/* Returns a byte that depends on its position and a seed, so that shifted and old data are detected. */
static inline unsigned char pattern_at(int place, int seed)
{
    return (unsigned char)(place * 7 + (place >> 8) * 13 + seed);
}

static inline void fill(char *data, int size, int seed)
{
    for (int place = 0; place < size; place++)
        data[place] = (char)pattern_at(place, seed);
}

static inline void check(const char *data, int size, int seed)
{
    for (int place = 0; place < size; place++) {
        if ((unsigned char)data[place] != pattern_at(place, seed)) {
            fprintf(stderr, "bench: wrong data in %d bytes at %d\n", size, place);
            exit(1);
        }
    }
}

#endif
