/* The resident memory of processes, from /proc/PID/smaps_rollup. */
#ifndef HPVM_BENCH_MEMORY_H
#define HPVM_BENCH_MEMORY_H

#include "bench.h"

/* The resident memory of a process, in KiB. */
struct resident {
    double all;   /* with its part of pages that several processes share ("Pss"): these add up over processes */
    double alone; /* pages of this process alone */
};

/* Reads the resident memory of a process. */
static inline struct resident resident_of(int pid)
{
    struct resident found = {0, 0};
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        fail("cannot read smaps_rollup of a process");
    while (fgets(line, sizeof line, file)) {
        double kib;
        if (sscanf(line, "Pss: %lf", &kib) == 1)
            found.all = kib;
        else if (sscanf(line, "Private_Clean: %lf", &kib) == 1 || sscanf(line, "Private_Dirty: %lf", &kib) == 1)
            found.alone += kib;
    }
    fclose(file);
    return found;
}

static inline int parent_of(int pid)
{
    char path[64], line[256];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        fail("cannot read the status of a process");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "PPid: %d", &parent) == 1)
            break;
    fclose(file);
    return parent;
}

/* Returns the number of the process that runs the benchmark. */
static inline int runner_of_benchmark(void)
{
    const char *runner = getenv("BENCH_RUNNER");
    if (!runner)
        fail("BENCH_RUNNER is not set");
    return atoi(runner);
}

/* Returns the resident memory of this process's ancestors below the runner of the benchmark, in KiB: the daemon of a
 * PVM; the launcher of an MPI and its helpers. */
static inline double resident_of_ancestors(int runner)
{
    double sum = 0;
    for (int pid = getppid(); pid > 1 && pid != runner; pid = parent_of(pid))
        sum += resident_of(pid).all;
    return sum;
}

#endif
