/* What the planted faults share. All tasks of a case are started at once, and know each other by their numbers from 0. */
#ifndef FAULT_H
#define FAULT_H

#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TASKS_MAX = 64 };

static int tid_of[TASKS_MAX];
static int tasks;
static int self;

/* Ends the task if a call has failed: then the case does not show what it is to show. */
static int checked(int result)
{
    if (result < 0) {
        fprintf(stderr, "a call has failed: %d\n", result);
        exit(1);
    }
    return result;
}

static int by_number(const void *one, const void *other)
{
    return *(const int *)one - *(const int *)other;
}

/* Enrolls, and learns the tids and the number of this task: its place among the tids. */
static void begin(void)
{
    int *siblings, mine = checked(pvm_mytid());

    tasks = checked(pvm_siblings(&siblings));
    if (tasks > TASKS_MAX)
        exit(1);
    for (int i = 0; i < tasks; i++)
        tid_of[i] = siblings[i];
    qsort(tid_of, tasks, sizeof tid_of[0], by_number);
    while (tid_of[self] != mine)
        self++;
}

/* Sends an empty message. */
static void tell(int to, int tag)
{
    checked(pvm_initsend(PvmDataDefault));
    checked(pvm_send(tid_of[to], tag));
}

/* Receives a message; -1 stands for any task. */
static void await(int from, int tag)
{
    checked(pvm_recv(from < 0 ? -1 : tid_of[from], tag));
}

/* Goes on for ever without the library, as a long computation does. */
static void compute(void)
{
    for (;;)
        sleep(60);
}

/* Waits until all tasks are there. */
static void meet(void)
{
    checked(pvm_joingroup("all"));
    while (pvm_gsize("all") < tasks)
        usleep(1000);
    checked(pvm_barrier("all", tasks));
}

/* Three tasks meet. Then the last one waits for a message of the first, and the others go on. */
static void meet_and_keep_one(void)
{
    begin();
    meet();
    if (self == 2)
        await(0, 5);
}

#endif
