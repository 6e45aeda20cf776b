/* Tests long shares of pvm_reduce, which the root combines while they arrive: shares of many lengths, shares
 * that are too short or too long, and shares of a member that pauses or dies in the middle of its share. */
#include "check.h"
#include <signal.h>
#include <sys/mman.h>

#define GROUP "reduce"
#define TAG 5

enum { COUNT = 1 << 18, BYTES = COUNT * 8, ANSWER = 9, GO = 10 };

static const int counts[] = {127, 128, 129, 1535, 1536, 5001, 40003, COUNT};

/* The second half of the data: the first access to it stops the process for a while, or kills it. */
static char *trap;
static int deadly;

static void on_trap(int number)
{
    usleep(100000); /* the root waits now */
    if (deadly)
        raise(SIGKILL);
    if (mprotect(trap, BYTES / 2, PROT_READ | PROT_WRITE) != 0)
        _exit(number);
}

static double *filled(double *data, int own)
{
    int i;

    for (i = 0; i < COUNT; i++)
        data[i] = i * 3 + own;
    return data;
}

static double *memory(void)
{
    void *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(data != MAP_FAILED);
    return data;
}

static void member(int root)
{
    double *data = filled(memory(), 1);
    int i;

    pvm_setopt(PvmAutoErr, 0);
    CHECK(pvm_joingroup(GROUP) == 1);
    CHECK(signal(SIGSEGV, on_trap) != SIG_ERR);
    trap = (char *)data + BYTES / 2;
    CHECK(send_int(root, ANSWER, pvm_mytid()) == 0);
    for (i = 0; i < (int)(sizeof counts / sizeof counts[0]); i++) {
        receive_int(root, GO);
        CHECK(pvm_reduce(PvmSum, data, counts[i], PVM_DOUBLE, TAG, GROUP, 0) == 0);
        CHECK(pvm_reduce(PvmSum, data, counts[i] - 1, PVM_DOUBLE, TAG, GROUP, 0) == 0);
        CHECK(pvm_reduce(PvmSum, data, counts[i] - 1, PVM_DOUBLE, TAG, GROUP, 0) == 0);
        CHECK(send_int(root, ANSWER, i) == 0);
        CHECK(pvm_reduce(PvmMax, data, counts[i], PVM_DOUBLE, TAG, GROUP, 0) == 0);
    }
    receive_int(root, GO);
    CHECK(mprotect(trap, BYTES / 2, PROT_NONE) == 0);
    CHECK(pvm_reduce(PvmSum, data, COUNT, PVM_DOUBLE, TAG, GROUP, 0) == 0);
    receive_int(root, GO);
    deadly = 1;
    CHECK(mprotect(trap, BYTES / 2, PROT_NONE) == 0);
    pvm_reduce(PvmSum, data, COUNT, PVM_DOUBLE, TAG, GROUP, 0);
    exit(1); /* it should have been killed */
}

/* Returns whether each item is the root's value plus the other member's value `times` times. */
static int holds(double *data, int count, int times)
{
    int i;

    for (i = 0; i < COUNT; i++)
        if (data[i] != (i < count ? i * 3 * (1 + times) + times : i * 3))
            return 0;
    return 1;
}

static int reduce(double *data, int count)
{
    return pvm_reduce(PvmSum, data, count, PVM_DOUBLE, TAG, GROUP, 0);
}

static void lengths(double *data, int other)
{
    int i;

    for (i = 0; i < (int)(sizeof counts / sizeof counts[0]); i++) {
        int count = counts[i];

        CHECK(send_int(other, GO, 0) == 0);
        CHECK(reduce(filled(data, 0), count) == 0);
        CHECK(holds(data, count, 1));
        /* a share that is too short, then one that is too long: the root combines nothing, and the next share
         * is combined correctly */
        CHECK(reduce(filled(data, 0), count) == PvmMismatch);
        CHECK(holds(data, 0, 0));
        CHECK(reduce(filled(data, 0), count - 2) == PvmMismatch);
        CHECK(holds(data, 0, 0));
        CHECK(receive_int(other, ANSWER) == i);
        usleep(5000);
        CHECK(pvm_probe(-1, 99) == 0); /* the share arrives before the root waits */
        CHECK(pvm_reduce(PvmMax, data, count, PVM_DOUBLE, TAG, GROUP, 0) == 0);
        CHECK(data[0] == 1 && data[count - 1] == (count - 1) * 3 + 1);
    }
}

int main(void)
{
    double *data;
    int me = pvm_mytid(), other;
    pid_t child;

    CHECK(pvm_joingroup(GROUP) == 0);
    child = fork();
    if (child == 0)
        member(me);
    pvm_setopt(PvmAutoErr, 0);
    data = memory();
    other = receive_int(-1, ANSWER);
    lengths(data, other);

    CHECK(send_int(other, GO, 0) == 0);
    CHECK(reduce(filled(data, 0), COUNT) == 0);
    CHECK(holds(data, COUNT, 1)); /* each item was combined once, even those sent before the pause */

    filled(data, 0);
    CHECK(send_int(other, GO, 0) == 0);
    CHECK(reduce(data, COUNT) == PvmNoTask);
    CHECK(status_of(child) == 128 + SIGKILL);
    CHECK(reduce(filled(data, 0), COUNT) == 0); /* the root is the only member now */
    CHECK(holds(data, 0, 0));
    CHECK(pvm_exit() == 0);
    return 0;
}
