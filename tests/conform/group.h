/* Helpers of the group cases: children that execute their parent's orders, one call at a time, so
 * that a case can prescribe any order of events. */
#ifndef GROUP_H
#define GROUP_H

#include "case.h"
#include <signal.h>

/* Functions of the group library that the header does not declare. */
extern int gs_getgstid(void);
extern int pvm_grphostinfo(char *group, int host, int *coordinator, int *members, int *hosts);
extern int pvm_grpvhostinfo(char *group, int **coordinators, int **members, int *hosts);
extern void pvm_gsdump(void);
extern int gstid;
extern struct timeval *pvmgs_tmout;

/* Tags between parent and children. */
#define GROUP_ORDER 900
#define GROUP_ANSWER 901
/* The result of group_answer if no answer arrives. */
#define NO_ANSWER (-1000)

enum group_call { JOIN, LEAVE, SIZE, TID, INSTANCE, BARRIER, BARRIERS, STORM, CAST, HEAR, FREEZE, SUM, SUMS, GATHER, SCATTER, END, DIE };

static double group_patience = 10.0;

/* Orders a child to make a call; `first` and `second` are its arguments. */
static void group_order(int tid, int call, char *group, int first, int second)
{
    int words[3], old = pvm_setsbuf(0);
    words[0] = call;
    words[1] = first;
    words[2] = second;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(words, 3, 1);
    pvm_pkstr(group);
    pvm_send(tid, GROUP_ORDER);
    pvm_freebuf(pvm_getsbuf());
    pvm_setsbuf(old);
}

/* Waits for the result of the child's call, and returns it. */
static int group_answer(int tid)
{
    int result = 0;
    if (case_receive(tid, GROUP_ANSWER, group_patience) <= 0)
        return NO_ANSWER;
    pvm_upkint(&result, 1, 1);
    return result;
}

/* Sends an order, and waits for the answer. */
static int group_do(int tid, int call, char *group, int first, int second)
{
    group_order(tid, call, group, first, second);
    return group_answer(tid);
}

/* Adds the `value` of all members; the root answers with the sum. */
static int group_sum(char *group, int value, int root)
{
    int result = pvm_reduce(PvmSum, &value, 1, PVM_INT, 7, group, root);
    if (result < 0)
        return result;
    return pvm_getinst(group, pvm_mytid()) == root ? value : 0;
}

/* Runs `rounds` sums and gathers one after another, even if some fail. */
static int group_sums(char *group, int rounds, int root)
{
    int all[64], value, result = 0, next;
    while (rounds-- > 0) {
        value = 1;
        next = pvm_reduce(PvmSum, &value, 1, PVM_INT, 17, group, root);
        result = next < 0 ? next : result;
        next = pvm_gather(all, &value, 1, PVM_INT, 18, group, root);
        result = next < 0 ? next : result;
    }
    return result;
}

/* The root answers with the gathered values as decimal digits, one for each member. */
static int group_gather(char *group, int value, int root)
{
    int all[64] = {0}, result, size, index, digits = 0;
    result = pvm_gather(all, &value, 1, PVM_INT, 8, group, root);
    if (result < 0)
        return result;
    size = pvm_gsize(group);
    if (pvm_getinst(group, pvm_mytid()) != root)
        return 0;
    for (index = 0; index < size; index++)
        digits = 10 * digits + all[index];
    return digits;
}

/* Each member answers with the value that it received: its instance multiplied by the root's `value`. */
static int group_scatter(char *group, int value, int root)
{
    int all[64], mine = -1, result, index;
    for (index = 0; index < 64; index++)
        all[index] = index * value;
    result = pvm_scatter(&mine, all, 1, PVM_INT, 9, group, root);
    return result < 0 ? result : mine;
}

static int group_barriers(char *group, int count, int rounds)
{
    int result = 0;
    while (rounds-- > 0 && result >= 0)
        result = pvm_barrier(group, count);
    return result;
}

/* Calls barriers until one fails, and then leaves the group, so that nobody waits for this task. */
static int group_storm(char *group, int rounds)
{
    int result = group_barriers(group, -1, rounds);
    pvm_lvgroup(group);
    return result;
}

static int group_cast(char *group, int tag, int value)
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    return pvm_bcast(group, tag);
}

static int group_hear(int tag)
{
    int value = 0;
    if (case_receive(-1, tag, 0.3) <= 0)
        return NO_ANSWER;
    pvm_upkint(&value, 1, 1);
    return value;
}

/* Makes one call. */
static int group_call(int call, char *group, int first, int second)
{
    switch (call) {
    case JOIN: return pvm_joingroup(group);
    case LEAVE: return pvm_lvgroup(group);
    case SIZE: return pvm_gsize(group);
    case TID: return pvm_gettid(group, first);
    case INSTANCE: return pvm_getinst(group, first);
    case BARRIER: return pvm_barrier(group, first);
    case BARRIERS: return group_barriers(group, first, second);
    case STORM: return group_storm(group, first);
    case CAST: return group_cast(group, first, second);
    case HEAR: return group_hear(first);
    case FREEZE: return pvm_freezegroup(group, first);
    case SUM: return group_sum(group, first, second);
    case SUMS: return group_sums(group, first, second);
    case GATHER: return group_gather(group, first, second);
    case SCATTER: return group_scatter(group, first, second);
    case DIE: raise(SIGKILL);
    }
    return NO_ANSWER;
}

/* Executes orders until the order to end arrives. */
static int group_child(void)
{
    int parent = pvm_parent(), words[3], result;
    char group[256];
    pvm_setopt(PvmAutoErr, 0);
    for (;;) {
        pvm_recv(parent, GROUP_ORDER);
        pvm_upkint(words, 3, 1);
        pvm_upkstr(group);
        if (words[0] == END)
            break;
        result = group_call(words[0], group, words[1], words[2]);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&result, 1, 1);
        pvm_send(parent, GROUP_ANSWER);
    }
    pvm_exit();
    return 0;
}

/* Starts children. */
static void group_spawn(int count, int *tids)
{
    int started = case_spawn("child", count, tids);
    if (started != count)
        printf("only %d of %d children\n", started, count);
}

/* Ends the children. */
static void group_end(int count, int *tids)
{
    int child;
    for (child = 0; child < count; child++)
        group_order(tids[child], END, "", 0, 0);
    for (child = 0; child < count; child++)
        case_gone(tids[child]);
}

/* Kills a child and waits until the group has noticed. */
static void group_kill(int tid, char *group, int size_after)
{
    int turn;
    group_order(tid, DIE, "", 0, 0);
    case_gone(tid);
    for (turn = 0; turn < 1000 && pvm_gsize(group) > size_after; turn++)
        usleep(2000);
}

#endif
