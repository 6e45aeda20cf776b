/* Tests PvmBackoff: instance n of a group waits n times the value before it sends to one task, or its share to the root
 * of a gather or a reduction. Meanwhile it takes in messages. */
#include "check.h"
#include <time.h>

#define GROUP "backoff"
#define OTHER "other"

enum { TAG = 5, ASK = 6, TOLD = 7, BACKOFF_MS = 120 };

static int handled, root;

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

static int on_ask(int buffer)
{
    /* The send of a handler does not wait. */
    double start = now_ms();

    (void)buffer;
    CHECK(send_int(root, TOLD, 1) == 0);
    CHECK(now_ms() - start < BACKOFF_MS / 2);
    handled++;
    return 0;
}

/* Returns how long a send to the other member takes, by either call. */
static double send_ms(int to, int one_call)
{
    double start = now_ms();
    int value = 3;

    if (one_call)
        CHECK(pvm_psend(to, TAG, &value, 1, PVM_INT) == 0);
    else
        CHECK(send_int(to, TAG, value) == 0);
    return now_ms() - start;
}

static double gather_ms(void)
{
    double start = now_ms();
    int share = 2, all[2];

    CHECK(pvm_gather(all, &share, 1, PVM_INT, TAG, GROUP, 0) == 0);
    return now_ms() - start;
}

static double reduce_ms(void)
{
    double start = now_ms();
    int share = 2;

    CHECK(pvm_reduce(PvmSum, &share, 1, PVM_INT, TAG, GROUP, 0) == 0);
    return now_ms() - start;
}

/* Instance 1. */
static void member(void)
{
    pvm_setopt(PvmAutoErr, 0);
    CHECK(pvm_getopt(PvmBackoff) == 0);
    CHECK(pvm_setopt(PvmBackoff, -1) == PvmBadParam);
    CHECK(pvm_setopt(PvmBackoff, BACKOFF_MS * 1000) == 0);
    CHECK(pvm_getopt(PvmBackoff) == BACKOFF_MS * 1000);
    /* A task without a group does not wait. */
    CHECK(send_ms(root, 0) < BACKOFF_MS / 2);
    CHECK(pvm_joingroup(GROUP) == 1);
    CHECK(pvm_barrier(GROUP, 2) == 0);
    CHECK(send_ms(root, 0) >= BACKOFF_MS);
    CHECK(send_ms(root, 1) >= BACKOFF_MS);
    CHECK(gather_ms() >= BACKOFF_MS);
    CHECK(reduce_ms() >= BACKOFF_MS);
    /* A message to itself has no other senders. */
    CHECK(send_ms(pvm_mytid(), 0) < BACKOFF_MS / 2);
    CHECK(receive_int(pvm_mytid(), TAG) == 3);
    /* The group joined last decides; in it this task is the first. */
    CHECK(pvm_joingroup(OTHER) == 0);
    CHECK(send_ms(root, 0) < BACKOFF_MS / 2);
    CHECK(pvm_lvgroup(OTHER) == 0);
    CHECK(send_ms(root, 0) >= BACKOFF_MS);
    /* What arrives during the wait is taken in: here by a handler. */
    CHECK(pvm_addmhf(root, ASK, pvm_getcontext(), on_ask) >= 0);
    CHECK(pvm_barrier(GROUP, 2) == 0);
    CHECK(send_ms(root, 0) >= BACKOFF_MS);
    CHECK(handled == 1);
    CHECK(pvm_setopt(PvmBackoff, 0) == BACKOFF_MS * 1000);
    CHECK(send_ms(root, 1) < BACKOFF_MS / 2);
    CHECK(pvm_barrier(GROUP, 2) == 0);
    CHECK(pvm_exit() == 0);
    exit(0);
}

int main(void)
{
    int other, i;
    pid_t child;

    root = pvm_mytid();
    CHECK(pvm_joingroup(GROUP) == 0);
    child = fork();
    if (child == 0)
        member();
    /* Instance 0 waits zero times the value. */
    CHECK(pvm_setopt(PvmBackoff, BACKOFF_MS * 1000) == 0);
    CHECK(receive_int(-1, TAG) == 3);
    CHECK(pvm_barrier(GROUP, 2) == 0);
    other = pvm_gettid(GROUP, 1);
    CHECK(receive_int(other, TAG) == 3);
    CHECK(receive_int(other, TAG) == 3);
    gather_ms();
    reduce_ms();
    for (i = 0; i < 2; i++)
        CHECK(receive_int(other, TAG) == 3);
    CHECK(pvm_barrier(GROUP, 2) == 0);
    usleep(BACKOFF_MS * 1000 / 4);
    CHECK(send_ms(other, 1) < BACKOFF_MS / 2);
    CHECK(send_int(other, ASK, 4) == 0);
    CHECK(receive_int(other, TOLD) == 1);
    for (i = 0; i < 2; i++)
        CHECK(receive_int(other, TAG) == 3);
    CHECK(pvm_barrier(GROUP, 2) == 0);
    CHECK(status_of(child) == 0);
    CHECK(pvm_exit() == 0);
    return 0;
}
