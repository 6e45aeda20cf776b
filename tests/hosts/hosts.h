/* What the scenarios on several hosts share. */
#ifndef HOSTS_H
#define HOSTS_H

#include "case.h"

/* How long anything may take to come from another host, in seconds. */
#define PATIENCE 20.0

/* The index of a host of that name in the configuration, or -1. */
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

/* The tid of the daemon of a host of that name, or 0. */
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

/* Whether there is a direct route: news of its end come at once where there is none. */
static int is_linked(int tid)
{
    pvm_notify(PvmRouteDelete, 72, 1, &tid);
    if (pvm_nrecv(-1, 72) > 0)
        return 0;
    pvm_notify(PvmRouteDelete | PvmNotifyCancel, 72, 1, &tid);
    return 1;
}

/* Starts this program in a role on a host; gives the tid, or what went wrong. */
static int spawn_on(const char *host, char *role)
{
    char *arguments[] = {role, NULL};
    int tid = 0, count = pvm_spawn(case_path(), arguments, PvmTaskHost, (char *)host, 1, &tid);
    return count == 1 ? tid : tid < 0 ? tid : count;
}

/* One of each name, on the hosts of all names; the tids in the same order. */
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

#endif
