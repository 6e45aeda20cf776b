/* pvm_lanbarr and pvm_barrier over all hosts: no member goes on before all have arrived, whatever the members call. */
//@ ours-only 2.11: skip
//@ timeout 60
#include "hosts.h"
#include <sys/time.h>

#define MEMBERS 8
#define ROUNDS 300
#define GROUP "lan"

/* The scenarios are linked with the library of PVM 3.4.6, which lacks this call of hpvm. */
int pvm_lanbarr(char *group, int count) __attribute__((weak));

/* Returns the time in us. All hosts have the same clock. */
static double now(void)
{
    struct timeval time;
    gettimeofday(&time, NULL);
    return time.tv_sec * 1e6 + time.tv_usec;
}

static void child(void)
{
    static double times[2][ROUNDS];
    int i, me = pvm_joingroup(GROUP), well = pvm_barrier(GROUP, MEMBERS) == 0;
    for (i = 0; i < ROUNDS; i++) {
        int count = (i + me) % 3 == 0 ? -1 : MEMBERS;
        if (i % 50 == 10 && me == i / 50)
            usleep(40000); /* one member is late */
        times[0][i] = now();
        /* First all call one, then all the other, then each what it likes. */
        well &= (i < 100 || (i >= 200 && (i * 7 + me * 5) % 4) ? pvm_lanbarr : pvm_barrier)(GROUP, count) == 0;
        times[1][i] = now();
    }
    well &= pvm_lanbarr(GROUP, 0) == PvmBadParam && pvm_lanbarr("nobody", 1) == PvmNoGroup;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&well, 1, 1);
    pvm_pkdouble(times[0], 2 * ROUNDS, 1);
    pvm_send(pvm_parent(), 5);
    pvm_barrier(GROUP, MEMBERS);
}

int main(int argc, char **argv)
{
    static double arrived[ROUNDS], left[ROUNDS], times[2 * ROUNDS];
    int tids[MEMBERS], i, k, well, early = 0;
    case_begin();
    if (argc > 1) {
        child();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(spawn_on_all("child", tids));
    SHOW(spawn_on_all("child", tids + 4));
    for (i = 0; i < MEMBERS; i++) {
        well = case_receive(tids[i], 5, 2 * PATIENCE) > 0;
        if (well) {
            pvm_upkint(&well, 1, 1);
            pvm_upkdouble(times, 2 * ROUNDS, 1);
        }
        printf("member: %d\n", well);
        for (k = 0; k < ROUNDS; k++) {
            if (i == 0 || times[k] > arrived[k])
                arrived[k] = times[k];
            if (i == 0 || times[ROUNDS + k] < left[k])
                left[k] = times[ROUNDS + k];
        }
    }
    for (k = 0; k < ROUNDS; k++)
        early += left[k] < arrived[k];
    printf("released too early: %d\n", early);
    pvm_exit();
    return 0;
}
