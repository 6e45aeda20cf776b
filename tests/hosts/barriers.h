/* When the members of a group arrive at barriers and leave them. */
#ifndef BARRIERS_H
#define BARRIERS_H

#include "hosts.h"
#include <sys/time.h>

/* Returns the time in us. All hosts have the same clock. */
static double now(void)
{
    struct timeval time;
    gettimeofday(&time, NULL);
    return time.tv_sec * 1e6 + time.tv_usec;
}

/* Sends the parent whether all went well, and the times: of all arrivals, then of all departures. */
static void report_barriers(int well, double *times, int rounds)
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&well, 1, 1);
    pvm_pkdouble(times, 2 * rounds, 1);
    pvm_send(pvm_parent(), 5);
}

/* Receives the reports of all members. Prints whether all went well, and how many barriers a member left before the last
 * one had arrived. */
static void show_early_releases(const int *tids, int members, int rounds)
{
    double *times = calloc(4 * rounds, sizeof *times), *arrived = times + 2 * rounds, *left = arrived + rounds;
    int i, k, well, early = 0;
    for (i = 0; i < members; i++) {
        well = case_receive(tids[i], 5, 2 * PATIENCE) > 0;
        if (well) {
            pvm_upkint(&well, 1, 1);
            pvm_upkdouble(times, 2 * rounds, 1);
        }
        printf("member: %d\n", well);
        for (k = 0; k < rounds; k++) {
            if (i == 0 || times[k] > arrived[k])
                arrived[k] = times[k];
            if (i == 0 || times[rounds + k] < left[k])
                left[k] = times[rounds + k];
        }
    }
    for (k = 0; k < rounds; k++)
        early += left[k] < arrived[k];
    printf("released too early: %d\n", early);
    free(times);
}

#endif
