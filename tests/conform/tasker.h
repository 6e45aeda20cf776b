/* What the cases with taskers of their own share. */
#ifndef TASKER_H
#define TASKER_H

#include "case.h"

/* Starts a task as the message SM_STTASK asks that was just received; its tid goes to `tid`.
   Returns the process. */
static int tasker_start(int *tid)
{
    int flags, count, i, id;
    char path[4096], *arguments[32], *environment[256], text[4096];
    pvm_upkint(tid, 1, 1);
    pvm_upkint(&flags, 1, 1);
    pvm_upkstr(path);
    pvm_upkint(&count, 1, 1);
    for (i = 0; i < count; i++) {
        pvm_upkstr(text);
        arguments[i] = strdup(text);
    }
    arguments[i] = NULL;
    pvm_upkint(&count, 1, 1);
    for (i = 0; i < count; i++) {
        pvm_upkstr(text);
        environment[i] = strdup(text);
    }
    environment[i] = NULL;
    id = fork();
    if (id == 0) {
        for (i = 0; environment[i]; i++)
            putenv(environment[i]);
        execv(path, arguments);
        _exit(1);
    }
    return id;
}

#endif
