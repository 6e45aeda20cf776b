/* A call for which there is no memory fails, and the program continues. */
#include "check.h"
#include <sys/resource.h>

#define ITEMS (64 << 20)

static int items[ITEMS];

static void add(int *type, void *sum, void *next, int *count, int *info)
{
    int i;
    (void)type;
    for (i = 0; i < *count; i++)
        ((int *)sum)[i] += ((int *)next)[i];
    *info = 0;
}

int main(void)
{
    struct rlimit limit;
    unsigned long pages;
    FILE *file;

    pvm_setopt(PvmAutoErr, 0);
    CHECK(pvm_joingroup("alone") == 0);
    file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE) + sizeof items / 2;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK(pvm_reduce(add, items, ITEMS, PVM_INT, 1, "alone", 0) == PvmNoMem);
    CHECK(pvm_reduce(add, items, 1000, PVM_INT, 1, "alone", 0) == 0);
    CHECK(pvm_exit() == 0);
    return 0;
}
