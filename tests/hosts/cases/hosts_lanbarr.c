/* pvm_lanbarr and pvm_barrier over all hosts: no member goes on before all have arrived, whatever the members call. */
//@ ours-only 2.11: skip
//@ timeout 60
#include "hosts.h"
#include "barriers.h"

#define MEMBERS 8
#define ROUNDS 300
#define GROUP "lan"

/* The scenarios are linked with the library of PVM 3.4.6, which lacks this call of hpvm. */
int pvm_lanbarr(char *group, int count) __attribute__((weak));

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
    report_barriers(well, times[0], ROUNDS);
    pvm_barrier(GROUP, MEMBERS);
}

int main(int argc, char **argv)
{
    int tids[MEMBERS];
    case_begin();
    if (argc > 1) {
        child();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(spawn_on_all("child", tids));
    SHOW(spawn_on_all("child", tids + 4));
    show_early_releases(tids, MEMBERS, ROUNDS);
    pvm_exit();
    return 0;
}
