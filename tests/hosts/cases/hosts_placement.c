/* PvmGroupHost: barriers meet at the host that a member names, while it changes its mind and the host leaves. */
//@ fresh
//@ ours-only 2.9: skip
//@ timeout 60
#include "hosts.h"
#include "barriers.h"

#define MEMBERS 6
#define ROUNDS 900
#define GROUP "placed"

/* The scenarios are linked with the library of PVM 3.4.6, which lacks this call of hpvm. */
int pvm_lanbarr(char *group, int count) __attribute__((weak));

/* Prints the host at which the barriers of the group meet, as the console shows it: delta, as soon as it has been
 * appointed. After barriers that the master had to take back, that takes a second or two. */
static void show_place(void)
{
    fflush(stdout);
    system("for try in 1 2 3 4 5 6 7 8 9 10 11 12; do"
           " place=$(echo conf -g | pvm | awk '$1 == \"" GROUP "\" { print $1, $2, $3, $4 }');"
           " case $place in *delta) break ;; esac;"
           " sleep 0.2; done; echo $place");
}

static void child(void)
{
    static double times[2][ROUNDS];
    int i, me = pvm_joingroup(GROUP), well = pvm_barrier(GROUP, MEMBERS) == 0;
    for (i = 0; i < ROUNDS; i++) {
        if (me == 0 && i % 300 == 0)
            well &= pvm_setopt(PvmGroupHost, host_tid(i == 300 ? "bravo" : "delta")) >= 0;
        if (i % 300 == 100)
            usleep(30000); /* all are late, so that the host is prepared in time */
        if (i == 850 && me == 1) {
            pvm_initsend(PvmDataDefault);
            pvm_send(pvm_parent(), 6);
        }
        if (i >= 850 && i < 890)
            usleep(120000); /* meanwhile delta is shown, and leaves */
        times[0][i] = now();
        well &= (i % 7 < 4 ? pvm_barrier : pvm_lanbarr)(GROUP, i % 2 ? MEMBERS : -1) == 0;
        times[1][i] = now();
    }
    report_barriers(well, times[0], ROUNDS);
    pvm_barrier(GROUP, MEMBERS);
}

int main(int argc, char **argv)
{
    static const char *names[] = {"alfa", "bravo", "charlie"};
    int tids[MEMBERS], i, status = -99;
    char *delta[] = {"delta"};
    case_begin();
    if (argc > 1) {
        child();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(pvm_getopt(PvmGroupHost));
    SHOW(pvm_setopt(PvmGroupHost, 7));
    SHOW(pvm_setopt(PvmGroupHost, 99 << 18));
    SHOW(pvm_setopt(PvmGroupHost, host_tid("bravo")));
    SHOW(pvm_getopt(PvmGroupHost) == host_tid("bravo"));
    SHOW(pvm_setopt(PvmGroupHost, 0) == host_tid("bravo"));
    for (i = 0; i < MEMBERS; i++) {
        tids[i] = spawn_on(names[i % 3], "child");
        printf("spawned: %d\n", tids[i] > 0);
    }
    SHOW(case_receive(-1, 6, 2 * PATIENCE) > 0);
    show_place();
    SHOW(pvm_delhosts(delta, 1, &status));
    show_early_releases(tids, MEMBERS, ROUNDS);
    pvm_exit();
    return 0;
}
