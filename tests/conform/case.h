/* Helpers of all conformance cases. Each case prints its results, and the runner compares the outputs of both
 * sides. */
#ifndef CASE_H
#define CASE_H

#include <errno.h>
#include <pvm3.h>
#include <pvmtev.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Library functions that the header does not declare. */
extern int pvm_errno;
extern int pvm_vpackf(const char *format, va_list arguments);
extern int pvm_vunpackf(const char *format, va_list arguments);
extern int pvm_catchout(FILE *file);
extern int lpvmerr(char *function, int code);
extern int pvmgetclock(struct timeval *now);
extern int pvmsleep(int seconds);
extern char *pvmgettmp(void);
extern char *pvmnametag(int tag, int *found);
extern void pvmdisplaymhfinfo(char *who, char *message, int tid);

/* Prints an expression and its value. */
#define SHOW(call)                                                                                 \
    do {                                                                                           \
        int shown_ = (call);                                                                       \
        printf("%s: %d\n", #call, shown_);                                                         \
    } while (0)

/* Prints the sign of an expression, for values of which only the sign is the same in every run. */
#define SHOW_SIGN(call)                                                                            \
    do {                                                                                           \
        int shown_ = (call);                                                                       \
        if (shown_ > 0)                                                                            \
            printf("%s: positive\n", #call);                                                       \
        else                                                                                       \
            printf("%s: %d\n", #call, shown_);                                                     \
    } while (0)

/* Prints a tid; the runner numbers tids by their first appearance. */
#define SHOW_TID(call)                                                                             \
    do {                                                                                           \
        int shown_ = (call);                                                                       \
        if (shown_ > 0)                                                                            \
            printf("%s: t%x\n", #call, shown_);                                                    \
        else                                                                                       \
            printf("%s: %d\n", #call, shown_);                                                     \
    } while (0)

/* Prints an expression in hexadecimal digits. */
#define SHOW_HEX(call) printf("%s: %lx\n", #call, (unsigned long)(call))

/* Prints text. */
#define SHOW_TEXT(call)                                                                            \
    do {                                                                                           \
        const char *shown_ = (call);                                                               \
        printf("%s: %s\n", #call, shown_ ? shown_ : "(null)");                                     \
    } while (0)

/* Every case calls this first. A child that a case spawned must not print this line. */
static void case_begin(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stderr, NULL, _IONBF, 0);
}

/* Returns the path of this program, for cases that spawn themselves. */
static char *case_path(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return path;
}

/* Spawns this program as `role`; its main() finds the role in argv[1]. */
static int case_spawn(char *role, int count, int *tids)
{
    char *arguments[] = {role, NULL};
    return pvm_spawn(case_path(), arguments, PvmTaskDefault, "", count, tids);
}

/* As case_spawn, but on this host, for servers that only serve the tasks of their own host. */
static int case_spawn_here(char *role, int count, int *tids)
{
    char *arguments[] = {role, NULL};
    return pvm_spawn(case_path(), arguments, PvmTaskHost, ".", count, tids);
}

/* Receives with a time limit, so that a lost message is a line of output and not a timeout. */
static int case_receive(int tid, int tag, double seconds)
{
    struct timeval limit;
    limit.tv_sec = (long)seconds;
    limit.tv_usec = (long)((seconds - (long)seconds) * 1e6);
    return pvm_trecv(tid, tag, &limit);
}

/* Sends an empty message. */
static int case_signal(int tid, int tag)
{
    int old = pvm_setsbuf(0), result;
    pvm_initsend(PvmDataDefault);
    result = pvm_send(tid, tag);
    pvm_freebuf(pvm_getsbuf());
    pvm_setsbuf(old);
    return result;
}

/* Waits until a task has ended. */
static void case_gone(int tid)
{
    int turn;
    for (turn = 0; turn < 1000 && pvm_pstat(tid) == PvmOk; turn++)
        usleep(5000);
}

/* Receives a message that this task has sent to itself. */
static int case_own(int tag)
{
    return case_receive(pvm_mytid(), tag, 5.0);
}

#endif
