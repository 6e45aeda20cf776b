/* Measures of the starts of tasks and hosts on a PVM. */
#ifndef HPVM_BENCH_PVM_STARTS_H
#define HPVM_BENCH_PVM_STARTS_H

#include "pvm_forms.h"

#define TASKS_MANY 32
/* The most hosts that a measure adds. */
#define HOSTS_MAX 250

/* Runs a task of the spawn measure: it enrolls, reports that, and ends. */
static void spawned(void)
{
    int parent = must(pvm_parent(), "pvm_parent");
    pvm_initsend(PvmDataRaw);
    must(pvm_send(parent, TAG_READY), "pvm_send");
    pvm_exit();
}

static void spawn(char *program, char *role, char *host, int count, int *tids)
{
    char *arguments[] = {role, NULL};
    int where = host ? PvmTaskHost : PvmTaskDefault;
    int started = pvm_spawn(program, arguments, where, host, count, tids);
    if (started != count) {
        fprintf(stderr, "bench: pvm_spawn started %d of %d (%d)\n", started, count, tids[count - 1]);
        exit(1);
    }
}

static void measure_spawn(char *program, int repetitions)
{
    int tids[TASKS_MANY];
    must(pvm_mytid(), "pvm_mytid");
    for (int i = -1; i < repetitions; i++) {
        double start = now_us();
        spawn(program, "spawned", NULL, TASKS_MANY, tids);
        double called = now_us();
        for (int k = 0; k < TASKS_MANY; k++)
            must(pvm_recv(-1, TAG_READY), "pvm_recv");
        double heard = now_us();
        must(pvm_notify(PvmTaskExit, TAG_END, TASKS_MANY, tids), "pvm_notify");
        for (int k = 0; k < TASKS_MANY; k++)
            must(pvm_recv(-1, TAG_END), "pvm_recv");
        if (i >= 0) {
            report("spawn_call", TASKS_MANY, (called - start) * 1e-3, "ms");
            report("spawn_all", TASKS_MANY, (heard - start) * 1e-3, "ms");
        }
    }
}

/* Starts many tasks that never enroll. */
static void measure_starts(int repetitions)
{
    int tids[TRUE_COUNT];
    must(pvm_mytid(), "pvm_mytid");
    for (int i = -1; i < repetitions; i++) {
        double start = now_us();
        spawn(TRUE_PROGRAM, NULL, NULL, TRUE_COUNT, tids);
        double elapsed = now_us() - start;
        must(pvm_notify(PvmTaskExit, TAG_END, TRUE_COUNT, tids), "pvm_notify");
        for (int k = 0; k < TRUE_COUNT; k++)
            must(pvm_recv(-1, TAG_END), "pvm_recv");
        if (i >= 0)
            report("starts", TRUE_COUNT, elapsed * 1e-3, "ms");
    }
}

/* Adds hosts, and deletes them again. */
static void measure_adding(int count, int repetitions)
{
    static char *names[HOSTS_MAX];
    static int status[HOSTS_MAX], gone[HOSTS_MAX];
    char *text = strdup(getenv("BENCH_HOSTS") ? getenv("BENCH_HOSTS") : "");
    int found = 0, added;
    for (char *name = strtok(text, ","); name && found < HOSTS_MAX; name = strtok(NULL, ","))
        names[found++] = name;
    if (found < count)
        fail("BENCH_HOSTS has too few names");
    must(pvm_mytid(), "pvm_mytid");
    for (int i = 0; i < repetitions; i++) {
        double start = now_us();
        added = must(pvm_addhosts(names, count, status), "pvm_addhosts");
        double elapsed = now_us() - start;
        if (added != count) {
            fprintf(stderr, "bench: %d of %d hosts added (%d)\n", added, count, status[count - 1]);
            exit(1);
        }
        report("add", count, elapsed * 1e-3, "ms");
        must(pvm_notify(PvmHostDelete, TAG_END, count, status), "pvm_notify");
        must(pvm_delhosts(names, count, gone), "pvm_delhosts");
        for (int k = 0; k < count; k++)
            must(pvm_recv(-1, TAG_END), "pvm_recv");
        /* An ending daemon may still own the files that the next one on the same host needs. */
        usleep(500000);
    }
}

#endif
