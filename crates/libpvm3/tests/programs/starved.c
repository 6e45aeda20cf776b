/* Calls of a task without address space return errors; the other receivers of a multicast still get their
 * messages; and the calls succeed again as soon as there is space. */
#include "check.h"
#include <limits.h>
#include <sys/resource.h>

#define KNOWN 1
#define ALL 2
#define WORTH 3
#define LONG 4
#define ITEMS (2 << 20)

static int items[ITEMS];

/* Receives values until 0; sends them to the parent as the digits of one number. */
static int child(void)
{
    int worth = 0, value;
    while ((value = receive_int(pvm_parent(), ALL)) != 0)
        worth = 10 * worth + value;
    CHECK(send_int(pvm_parent(), WORTH, worth) == 0);
    CHECK(pvm_psend(pvm_parent(), LONG, items, ITEMS, PVM_INT) == 0);
    CHECK(receive_int(pvm_parent(), KNOWN) == 1);
    CHECK(pvm_exit() == 0);
    return 0;
}

/* Limits the address space to what is in use now; 0 lifts the limit. */
static void confine(int confined)
{
    struct rlimit limit;
    unsigned long pages;
    FILE *file = fopen("/proc/self/statm", "r");

    CHECK(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = confined ? pages * (unsigned long)sysconf(_SC_PAGESIZE) : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static int multicast(int *tids, int value)
{
    CHECK(pvm_initsend(PvmDataDefault) >= 0 && pvm_pkint(&value, 1, 1) == 0);
    return pvm_mcast(tids, 2, ALL);
}

int main(int count, char **words)
{
    char path[PATH_MAX], *arguments[] = { "child", NULL };
    int tids[2], worth, i;

    if (count > 1)
        return child();
    pvm_setopt(PvmAutoErr, 0);
    CHECK(realpath(words[0], path) && pvm_spawn(path, arguments, PvmTaskDefault, "", 2, tids) == 2);
    CHECK(send_int(tids[0], ALL, 1) == 0);
    confine(1);
    CHECK(multicast(tids, 2) == PvmOutOfRes);
    CHECK(multicast(tids, 3) == PvmOutOfRes);
    confine(0);
    CHECK(multicast(tids, 4) == 0);
    confine(1);
    CHECK(multicast(tids, 0) == 0);
    worth = receive_int(tids[0], WORTH);
    CHECK(worth == 1234);
    worth = receive_int(tids[1], WORTH);
    CHECK(worth == 4);
    CHECK(pvm_recv(tids[0], LONG) == PvmNoMem);
    CHECK(pvm_nrecv(pvm_mytid(), KNOWN) == 0);
    CHECK(pvm_recv(tids[0], LONG) == PvmNoMem && pvm_recv(-1, LONG) == PvmNoMem);
    confine(0);
    for (i = 0; i < 2; i++) {
        CHECK(pvm_precv(tids[i], LONG, items, ITEMS, PVM_INT, NULL, NULL, NULL) == 0);
        CHECK(send_int(tids[i], KNOWN, 1) == 0);
    }
    CHECK(pvm_exit() == 0);
    return 0;
}
