/* Tasks that sleep do not slow down others: not a master that waits, nor as many tasks as there are cores. */
//@ fresh
//@ timeout 60
#include "case.h"

#define TAG_PING 1
#define TAG_PONG 2
#define TAG_END 3
#define ROUND_TRIPS 20
#define SLEEPERS_MAX 64
/* Long enough that the receiver has to wait for the end of a message. */
#define INTS 1024

static int data[INTS];

static double now(void)
{
    struct timeval time;
    gettimeofday(&time, NULL);
    return time.tv_sec + time.tv_usec * 1e-6;
}

static int compare(const void *one, const void *other)
{
    double first = *(const double *)one, second = *(const double *)other;
    return (first > second) - (first < second);
}

/* Exchanges messages for half a second. Returns the median time of a round trip in seconds. */
static double median(int tid)
{
    static double times[100000];
    double end = now() + 0.5;
    int count = 0, turn;
    while (now() < end && count < 100000) {
        double start = now();
        for (turn = 0; turn < ROUND_TRIPS; turn++) {
            pvm_psend(tid, TAG_PING, data, INTS, PVM_INT);
            pvm_precv(tid, TAG_PONG, data, INTS, PVM_INT, NULL, NULL, NULL);
        }
        times[count++] = (now() - start) / ROUND_TRIPS;
    }
    qsort(times, count, sizeof times[0], compare);
    return times[count / 2];
}

static int child(char *role)
{
    if (strcmp(role, "sleep") == 0)
        pvm_recv(pvm_parent(), TAG_END);
    while (strcmp(role, "answer") == 0 && data[0] >= 0) {
        pvm_precv(pvm_parent(), TAG_PING, data, INTS, PVM_INT, NULL, NULL, NULL);
        pvm_psend(pvm_parent(), TAG_PONG, data, INTS, PVM_INT);
    }
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int peer, sleepers[SLEEPERS_MAX], count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    double alone, beside, start;
    case_begin();
    if (argc > 1)
        return child(argv[1]);
    if (count > SLEEPERS_MAX)
        count = SLEEPERS_MAX;
    SHOW(case_spawn("answer", 1, &peer));
    alone = median(peer);
    start = now();
    printf("all spawned: %d\n", case_spawn("sleep", count, sleepers) == count);
    do
        beside = median(peer);
    while (beside > 3 * alone && now() < start + 20);
    printf("at most three times as long beside tasks that sleep: %d\n", beside <= 3 * alone);
    data[0] = -1;
    pvm_psend(peer, TAG_PING, data, INTS, PVM_INT);
    pvm_initsend(PvmDataDefault);
    pvm_mcast(sleepers, count, TAG_END);
    pvm_exit();
    return 0;
}
