/* The bare limit of the machine: two pinned processes that spin on cache lines in shared memory,
 * and memcpy. No message system can be faster on two cores.
 *
 *   limit latency|bandwidth|rate|starts REPETITION_MS REPETITIONS
 *
 * starts: posix_spawn in a loop, not pinned.
 */
#include "bench.h"
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define LINE_BYTES 64
/* The distance between lines of different use: more than a prefetcher fetches at once. */
#define APART_BYTES 4096
#define RING_LINES 256

/* One cache line that holds flag and data together, as in the best message system. */
struct line {
    _Alignas(LINE_BYTES) _Atomic unsigned stamp;
    char data[LINE_BYTES - sizeof(unsigned)];
};

struct shared {
    struct line there;
    char apart_1[APART_BYTES - sizeof(struct line)];
    struct line back;
    char apart_2[APART_BYTES - sizeof(struct line)];
    struct line ring[RING_LINES];
    char first[MESSAGE_BYTES_MAX];
    char second[MESSAGE_BYTES_MAX];
};

static struct shared *shared;

enum { PING, COPY, RATE };

static void put(struct line *line, unsigned stamp, const void *data)
{
    if (data)
        memcpy(line->data, data, 8);
    atomic_store_explicit(&line->stamp, stamp, memory_order_release);
}

static void await(struct line *line, unsigned stamp, void *data)
{
    while (atomic_load_explicit(&line->stamp, memory_order_acquire) != stamp)
        ;
    if (data)
        memcpy(data, line->data, 8);
}

/* Does the exchanges of 8 bytes with the numbers `first` to `last`; `begins`: whether this side sends first. */
static void ping(unsigned first, unsigned last, int begins)
{
    char data[8] = {0};
    for (unsigned i = first; i <= last; i++) {
        if (begins) {
            put(&shared->there, i, data);
            await(&shared->back, i, data);
        } else {
            await(&shared->there, i, data);
            put(&shared->back, i, data);
        }
    }
}

/* Does exchanges of `size` bytes; the receiver copies each once, directly from the sender's memory. */
static void copy(unsigned first, unsigned last, int size, int begins)
{
    for (unsigned i = first; i <= last; i++) {
        if (begins) {
            put(&shared->there, i, NULL);
            await(&shared->back, i, NULL);
            memcpy(shared->first, shared->second, size);
        } else {
            await(&shared->there, i, NULL);
            memcpy(shared->second, shared->first, size);
            put(&shared->back, i, NULL);
        }
    }
}

/* Sends or receives windows of messages of one line each, with an answer to each window. */
static void rate(unsigned first, unsigned last, int begins)
{
    char data[8] = {0};
    unsigned sent = (first - 1) * WINDOW_MESSAGES;
    for (unsigned window = first; window <= last; window++) {
        for (int i = 0; i < WINDOW_MESSAGES; i++) {
            struct line *line = &shared->ring[sent % RING_LINES];
            sent++;
            if (begins)
                put(line, sent, data);
            else
                await(line, sent, data);
        }
        if (begins)
            await(&shared->back, window, NULL);
        else
            put(&shared->back, window, NULL);
    }
}

static void work(int what, unsigned first, unsigned last, int size, int begins)
{
    if (what == PING)
        ping(first, last, begins);
    else if (what == COPY)
        copy(first, last, size, begins);
    else
        rate(first, last, begins);
}

/* Runs one repetition with a new second process; returns the time of `count` exchanges in us. */
static double timed(int what, int count, int size)
{
    unsigned warm = warm_exchanges(size);
    memset(shared, 0, offsetof(struct shared, first));
    pid_t other = fork();
    if (other < 0)
        fail("cannot fork");
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin_to_core(1);
        work(what, 1, warm + count, size, 0);
        _exit(0);
    }
    work(what, 1, warm, size, 1);
    double start = now_us();
    work(what, warm + 1, warm + count, size, 1);
    double elapsed = now_us() - start;
    waitpid(other, NULL, 0);
    return elapsed;
}

static void measure(const char *name, int what, int size, struct effort effort)
{
    int count = warm_exchanges(size);
    count = exchanges_for(effort, timed(what, count, size), count);
    for (int i = 0; i < effort.repetitions; i++) {
        double elapsed = timed(what, count, size);
        if (what == RATE)
            report(name, 8, WINDOW_MESSAGES * (double)count / elapsed, "M/s");
        else
            report(name, size, elapsed / count / 2, "us");
    }
}

/* Measures memcpy between two buffers of one process. */
static void measure_memcpy(int size, struct effort effort)
{
    char *from = memory(size), *to = memory(size);
    int count = TRIAL_EXCHANGES;
    for (int i = -1; i < effort.repetitions; i++) {
        double start = now_us();
        for (int k = 0; k < count; k++) {
            memcpy(to, from, size);
            __asm__ volatile("" : : "r"(to), "r"(from) : "memory");
        }
        double elapsed = now_us() - start;
        if (i < 0)
            count = exchanges_for(effort, elapsed, count);
        else
            report("memcpy", size, elapsed / count, "us");
    }
    free(from);
    free(to);
}

/* Starts many processes, one after the other, as fast as the system can. */
static void measure_starts(struct effort effort)
{
    char *arguments[] = {TRUE_PROGRAM, NULL};
    for (int i = -1; i < effort.repetitions; i++) {
        double start = now_us();
        for (int k = 0; k < TRUE_COUNT; k++)
            if (posix_spawn(NULL, TRUE_PROGRAM, NULL, NULL, arguments, environ) != 0)
                fail("posix_spawn");
        double elapsed = now_us() - start;
        while (wait(NULL) > 0)
            ;
        if (i >= 0)
            report("starts", TRUE_COUNT, elapsed * 1e-3, "ms");
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        fail("usage: limit latency|bandwidth|rate|starts REPETITION_MS REPETITIONS");
    struct effort effort = {atof(argv[2]) * 1e3, atoi(argv[3])};
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("no shared memory");
    memset(shared, 0, sizeof *shared);
    if (strcmp(argv[1], "starts") == 0) {
        measure_starts(effort);
        return 0;
    }
    pin_to_core(0);
    if (strcmp(argv[1], "latency") == 0) {
        measure("pingpong_line", PING, 8, effort);
        for (int i = 1; i < COUNT_OF(latency_sizes); i++)
            measure("pingpong_copy", COPY, latency_sizes[i], effort);
    } else if (strcmp(argv[1], "rate") == 0) {
        measure("rate_line", RATE, 8, effort);
    } else if (strcmp(argv[1], "bandwidth") == 0) {
        for (int i = 0; i < COUNT_OF(bandwidth_sizes); i++) {
            measure("pingpong_copy", COPY, bandwidth_sizes[i], effort);
            measure_memcpy(bandwidth_sizes[i], effort);
        }
    } else {
        fail("unknown measure");
    }
    return 0;
}
