/*
 * roots: a root of a polynomial, by a group whose members meet at a barrier.
 *
 * The polynomial has degree four. The members divide an interval in which it changes its sign: each computes the
 * value at the beginning of its part, all meet at a barrier, and the master gathers the values, chooses the part
 * with the root and tells the others. Each iteration so divides the interval by the number of members. There is
 * little to compute, and the time of the barrier decides: the program prints its mean over the members, iteration
 * by iteration.
 *
 *     cc -O2 roots.c -lpvm3 -o roots
 *     pvm run ./roots 4
 *
 * Everything here is plain PVM 3.4: pvm_joingroup, pvm_barrier, pvm_gather, pvm_bcast.
 *
 * Copyright 2026 the hpvm authors. Licence: Apache-2.0.
 */
#include <pvm3.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GROUP "roots"

enum { TAG_SETUP = 1, TAG_SHARE, TAG_INTERVAL };

enum {
    MEMBERS_MAX = 256,
    ITERATIONS_DEFAULT = 7,
    MASTER = 0            /* the master's number in the group, since it joins first */
};

/* What a member contributes to an iteration. */
struct share {
    double value;         /* of the polynomial at the beginning of its part */
    double barrier_us;    /* how long it was in the barrier of the iteration */
};

static void stop(const char *what)
{
    fprintf(stderr, "roots: %s\n", what);
    pvm_exit();
    exit(1);
}

static int good(int result, const char *call)
{
    if (result < 0)
        stop(call);
    return result;
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

/* x^4 - 3 x^3 - 7 x^2 + 11 x + 5, which has one root between 1 and 3. */
static double polynomial(double x)
{
    return (((x - 3) * x - 7) * x + 11) * x + 5;
}

/* Computes this member's share of an iteration, and meets the others. */
static struct share work(const double *interval, int member, int members)
{
    struct share share;
    double start, x = interval[0] + (interval[1] - interval[0]) * member / members;

    share.value = polynomial(x);
    start = now_us();
    good(pvm_barrier(GROUP, members), "pvm_barrier");
    share.barrier_us = now_us() - start;
    return share;
}

/* Makes the interval that part of itself in which the polynomial changes its sign. */
static void choose(double *interval, const struct share *shares, int members)
{
    double length = (interval[1] - interval[0]) / members, first = interval[0];
    int part = 0;

    while (part < members - 1 && (shares[part].value < 0) == (shares[part + 1].value < 0))
        part++;
    interval[0] = first + part * length;
    interval[1] = first + (part + 1) * length;
}

static void work_for_master(void)
{
    int numbers[2], i, member;
    double interval[2];
    struct share share;

    good(pvm_recv(pvm_parent(), TAG_SETUP), "pvm_recv");
    good(pvm_upkint(numbers, 2, 1), "pvm_upkint");
    member = good(pvm_joingroup(GROUP), "pvm_joingroup");
    good(pvm_barrier(GROUP, numbers[0]), "pvm_barrier");
    for (i = 0; i < numbers[1]; i++) {
        good(pvm_recv(pvm_parent(), TAG_INTERVAL), "pvm_recv");
        good(pvm_upkdouble(interval, 2, 1), "pvm_upkdouble");
        share = work(interval, member, numbers[0]);
        good(pvm_gather(NULL, &share, 2, PVM_DOUBLE, TAG_SHARE, GROUP, MASTER), "pvm_gather");
    }
    /* The group ends when all have finished. */
    good(pvm_barrier(GROUP, numbers[0]), "pvm_barrier");
}

static void master(char *program, int members, int iterations)
{
    char *arguments[] = {"member", NULL};
    int tids[MEMBERS_MAX], numbers[2], i, member;
    double interval[2] = {1, 3}, sum, total = 0;
    struct share shares[MEMBERS_MAX], own;

    /* The master joins before the others exist: so it is number 0. */
    if (good(pvm_joingroup(GROUP), "pvm_joingroup") != MASTER)
        stop("another program uses the group");
    if (members > 1 && pvm_spawn(program, arguments, PvmTaskDefault, NULL, members - 1, tids) != members - 1)
        stop("not all members could be started");
    numbers[0] = members;
    numbers[1] = iterations;
    good(pvm_initsend(PvmDataDefault), "pvm_initsend");
    good(pvm_pkint(numbers, 2, 1), "pvm_pkint");
    if (members > 1)
        good(pvm_mcast(tids, members - 1, TAG_SETUP), "pvm_mcast");
    good(pvm_barrier(GROUP, members), "pvm_barrier");
    for (i = 1; i <= iterations; i++) {
        good(pvm_initsend(PvmDataDefault), "pvm_initsend");
        good(pvm_pkdouble(interval, 2, 1), "pvm_pkdouble");
        if (members > 1)
            good(pvm_bcast(GROUP, TAG_INTERVAL), "pvm_bcast");
        own = work(interval, MASTER, members);
        good(pvm_gather(shares, &own, 2, PVM_DOUBLE, TAG_SHARE, GROUP, MASTER), "pvm_gather");
        choose(interval, shares, members);
        for (sum = 0, member = 0; member < members; member++)
            sum += shares[member].barrier_us;
        total += sum / members;
        printf("iteration %d: root between %.12f and %.12f, barrier %.1f us\n", i, interval[0], interval[1],
               sum / members);
        fflush(stdout);
    }
    good(pvm_barrier(GROUP, members), "pvm_barrier");
    printf("roots: %d members, %d iterations, root %.6f, mean barrier %.1f us\n", members, iterations,
           (interval[0] + interval[1]) / 2, total / iterations);
}

int main(int argc, char **argv)
{
    static char program[PATH_MAX];
    int members, iterations;

    good(pvm_mytid(), "pvm_mytid");
    if (argc == 2 && strcmp(argv[1], "member") == 0) {
        work_for_master();
        pvm_exit();
        return 0;
    }
    members = argc > 1 ? atoi(argv[1]) : 0;
    iterations = argc > 2 ? atoi(argv[2]) : ITERATIONS_DEFAULT;
    if (members < 2 || members > MEMBERS_MAX || iterations < 1) {
        fprintf(stderr, "usage: roots MEMBERS [ITERATIONS]   (2 to %d members)\n", MEMBERS_MAX);
        pvm_exit();
        return 2;
    }
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        stop("/proc/self/exe");
    master(program, members, iterations);
    pvm_exit();
    return 0;
}
