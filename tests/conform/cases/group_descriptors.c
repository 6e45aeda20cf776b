/* A task without free descriptors cannot map the memory of a group, so it does not become a member. PVM needs
 * no descriptor for a group. */
//@ ours-only D12: skip
#include "group.h"
#include <sys/resource.h>

#define FILES 64
/* One descriptor more than the memory of a group needs. */
#define FREE_MAX 3

int main(void)
{
    struct rlimit limit;
    int files[FILES], count = 0, free;
    case_begin();
    pvm_mytid();
    pvm_setopt(PvmAutoErr, 0);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = FILES;
    setrlimit(RLIMIT_NOFILE, &limit);
    while (count < FILES && (files[count] = dup(0)) >= 0)
        count++;
    for (free = 0; free <= FREE_MAX; free++) {
        int joined = pvm_joingroup("g");
        int passed = pvm_barrier("g", 1);
        int left = pvm_lvgroup("g");
        printf("%d free: pvm_joingroup %d, pvm_barrier %d, pvm_lvgroup %d\n", free, joined, passed, left);
        close(files[--count]);
    }
    pvm_exit();
    return 0;
}
