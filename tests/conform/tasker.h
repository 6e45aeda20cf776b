/* Helpers of the cases that act as taskers. */
#ifndef TASKER_H
#define TASKER_H

#include "case.h"

/* The contents of an SM_STTASK message. */
struct tasker_order {
    int tid, flags, argument_count, variable_count;
    char path[4096], *arguments[32], *environment[256];
};

static char *tasker_word(void)
{
    char text[4096];
    pvm_upkstr(text);
    return strdup(text);
}

/* Reads the SM_STTASK message that was just received, except the three numbers at its end. */
static void tasker_read(struct tasker_order *order)
{
    int i;
    pvm_upkint(&order->tid, 1, 1);
    pvm_upkint(&order->flags, 1, 1);
    pvm_upkstr(order->path);
    pvm_upkint(&order->argument_count, 1, 1);
    for (i = 0; i < order->argument_count; i++)
        order->arguments[i] = tasker_word();
    order->arguments[i] = NULL;
    pvm_upkint(&order->variable_count, 1, 1);
    for (i = 0; i < order->variable_count; i++)
        order->environment[i] = tasker_word();
    order->environment[i] = NULL;
}

/* Starts the task. Returns the process id. */
static int tasker_fork(struct tasker_order *order)
{
    int i, id = fork();
    if (id == 0) {
        for (i = 0; order->environment[i]; i++)
            putenv(order->environment[i]);
        execv(order->path, order->arguments);
        _exit(1);
    }
    return id;
}

#endif
