/* Helpers of the test programs: a check that prints where it failed and ends the program, and simple messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <pvm3.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s (pvm_errno %d)\n", __FILE__, __LINE__, #condition,  \
                    pvm_errno);                                                                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

extern int pvm_errno;

/* Sends one int. */
static inline int send_int(int tid, int tag, int value)
{
    if (pvm_initsend(PvmDataDefault) < 0 || pvm_pkint(&value, 1, 1) < 0)
        return -1;
    return pvm_send(tid, tag);
}

/* Waits at most 10 seconds for a message with one int. */
static inline int receive_int(int tid, int tag)
{
    struct timeval limit = { 10, 0 };
    int value = -1;

    CHECK(pvm_trecv(tid, tag, &limit) > 0);
    CHECK(pvm_upkint(&value, 1, 1) == 0);
    return value;
}

/* Waits for a child process; returns its exit status, or 128 + the number of the signal that ended it. */
static inline int status_of(pid_t child)
{
    int status = -1;

    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
