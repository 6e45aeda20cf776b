/* Helpers of the scenarios on several hosts. */
#ifndef HOSTS_H
#define HOSTS_H

#include "case.h"
#include <poll.h>

/* The longest time that a message from another host may take, in seconds. */
#define PATIENCE 20.0

/* The scenarios are compiled with the header of PVM 3.4.6, which lacks these options of hpvm. */
#define PvmGroupHost 1005
#define PvmMcastRoute 1004
#define PvmMcastAutomatic 0
#define PvmMcastHypercube 3
#define PvmMcastIterative 1
#define PvmMcastBroadcast 4

/* Returns the index of the host with this name in the result of pvm_config, or -1. */
static int host_index(const char *name)
{
    struct pvmhostinfo *hosts;
    int count, i;
    if (pvm_config(&count, NULL, &hosts) < 0)
        return -1;
    for (i = 0; i < count; i++)
        if (strcmp(hosts[i].hi_name, name) == 0)
            return i;
    return -1;
}

/* Returns the tid of the daemon on the host with this name, or 0. */
static int host_tid(const char *name)
{
    struct pvmhostinfo *hosts;
    int count, i;
    if (pvm_config(&count, NULL, &hosts) < 0)
        return 0;
    for (i = 0; i < count; i++)
        if (strcmp(hosts[i].hi_name, name) == 0)
            return hosts[i].hi_tid;
    return 0;
}

/* Returns whether there is a direct route to the task: if there is none, the notification of its end arrives at
 * once. */
static int is_linked(int tid)
{
    pvm_notify(PvmRouteDelete, 72, 1, &tid);
    if (pvm_nrecv(-1, 72) > 0)
        return 0;
    pvm_notify(PvmRouteDelete | PvmNotifyCancel, 72, 1, &tid);
    return 1;
}

/* Returns the number in the next message of a task with this tag, and -1 if there is none. */
static int received_number(int tid, int tag)
{
    int number = -1;
    if (case_receive(tid, tag, PATIENCE) > 0)
        pvm_upkint(&number, 1, 1);
    return number;
}

/* Asks the daemon by pvm_tickle. */
static void tickle(int first, int second)
{
    int words[2] = {first, second};
    pvm_tickle(2, words, NULL, NULL);
}

/* Starts this program in a role on a host. Returns the tid or an error. */
static int spawn_on(const char *host, char *role)
{
    char *arguments[] = {role, NULL};
    int tid = 0, count = pvm_spawn(case_path(), arguments, PvmTaskHost, (char *)host, 1, &tid);
    return count == 1 ? tid : tid < 0 ? tid : count;
}

/* Starts one task on each of the four hosts. Stores the tids in the order of the hosts. */
static int spawn_on_all(char *role, int *tids)
{
    static const char *names[] = {"alfa", "bravo", "charlie", "delta"};
    int i, well = 0;
    for (i = 0; i < 4; i++) {
        tids[i] = spawn_on(names[i], role);
        well += tids[i] > 0;
    }
    return well;
}

/* Returns whether a line of the standard input has been read within this time. Ends the task at the end of the input. */
static int is_told(int milliseconds)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    char line[100];
    if (poll(&input, 1, milliseconds) <= 0)
        return 0;
    if (!fgets(line, sizeof line, stdin))
        exit(1);
    return 1;
}

#endif
