/* Tasks that sleep do not slow down others: not a master that waits, nor as many tasks as there are cores. */
//@ fresh
//@ timeout 60
#include "case.h"

#define TAG_PING 1
#define TAG_PONG 2
#define TAG_END 3
#define ROUND_TRIPS 200
#define SLEEPERS_MAX 16

static double now(void)
{
    struct timeval time;
    gettimeofday(&time, NULL);
    return time.tv_sec + time.tv_usec * 1e-6;
}

/* Exchanges messages for that many seconds. Returns the time of a round trip in the quickest block, in seconds. */
static double quickest(int tid, double seconds, double enough)
{
    double least = 1, end = now() + seconds;
    int value = 0, turn;
    while (now() < end && least > enough) {
        double start = now(), time;
        for (turn = 0; turn < ROUND_TRIPS; turn++) {
            pvm_psend(tid, TAG_PING, &value, 1, PVM_INT);
            pvm_precv(tid, TAG_PONG, &value, 1, PVM_INT, NULL, NULL, NULL);
        }
        time = (now() - start) / ROUND_TRIPS;
        if (time < least)
            least = time;
    }
    return least;
}

static int child(char *role)
{
    int value = 1;
    if (strcmp(role, "sleep") == 0)
        pvm_recv(pvm_parent(), TAG_END);
    while (strcmp(role, "answer") == 0 && value >= 0) {
        pvm_precv(pvm_parent(), TAG_PING, &value, 1, PVM_INT, NULL, NULL, NULL);
        pvm_psend(pvm_parent(), TAG_PONG, &value, 1, PVM_INT);
    }
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int peer, sleepers[SLEEPERS_MAX], count = (int)sysconf(_SC_NPROCESSORS_ONLN), end = -1;
    double alone, beside;
    case_begin();
    if (argc > 1)
        return child(argv[1]);
    if (count > SLEEPERS_MAX)
        count = SLEEPERS_MAX;
    SHOW(case_spawn("answer", 1, &peer));
    alone = quickest(peer, 0.5, 0);
    printf("all spawned: %d\n", case_spawn("sleep", count, sleepers) == count);
    beside = quickest(peer, 20, 3 * alone);
    printf("at most three times as long beside tasks that sleep: %d\n", beside <= 3 * alone);
    pvm_psend(peer, TAG_PING, &end, 1, PVM_INT);
    pvm_precv(peer, TAG_PONG, &end, 1, PVM_INT, NULL, NULL, NULL);
    pvm_initsend(PvmDataDefault);
    pvm_mcast(sleepers, count, TAG_END);
    pvm_exit();
    return 0;
}
