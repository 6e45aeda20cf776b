/* Barriers: given and implicit counts, successive barriers, and tasks that may not take part. */
#include "group.h"

#define CHILDREN 4
static int tids[CHILDREN];

static void all_order(int count)
{
    int child;
    for (child = 0; child < CHILDREN; child++)
        group_order(tids[child], BARRIER, "g", count, 0);
}

static void all_answer(void)
{
    int child;
    for (child = 0; child < CHILDREN; child++)
        SHOW(group_answer(tids[child]));
}

/* Returns whether a child still waits. */
static int waits(int tid)
{
    usleep(50000);
    return pvm_probe(tid, GROUP_ANSWER) == 0;
}

int main(int argc, char **argv)
{
    int child, round;
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_mytid();
    group_spawn(CHILDREN, tids);
    SHOW(pvm_joingroup("g"));
    SHOW(pvm_barrier("g", 1));
    SHOW(pvm_barrier("g", -1));
    for (child = 0; child < CHILDREN; child++)
        SHOW(group_do(tids[child], JOIN, "g", 0, 0));

    /* All members take part: their number is passed as the count, then -1. */
    for (round = 0; round < 3; round++) {
        all_order(round == 1 ? -1 : CHILDREN + 1);
        SHOW(waits(tids[0]));
        SHOW(pvm_barrier("g", round == 1 ? -1 : CHILDREN + 1));
        all_answer();
    }
    /* Some members pass the number, others -1: they meet in the same barrier. */
    all_order(-1);
    SHOW(pvm_barrier("g", CHILDREN + 1));
    all_answer();

    /* Barriers of only some of the members. */
    group_order(tids[0], BARRIER, "g", 2, 0);
    SHOW(waits(tids[0]));
    SHOW(group_do(tids[1], BARRIER, "g", 2, 0));
    SHOW(group_answer(tids[0]));
    SHOW(group_do(tids[2], BARRIER, "g", 1, 0));

    /* A member with another count is rejected, and the barrier continues. */
    group_order(tids[0], BARRIER, "g", 3, 0);
    SHOW(waits(tids[0]));
    SHOW(group_do(tids[1], BARRIER, "g", 2, 0));
    SHOW(pvm_barrier("g", -1));
    SHOW(pvm_barrier("g", 1));
    group_order(tids[1], BARRIER, "g", 3, 0);
    SHOW(waits(tids[1]));
    SHOW(pvm_barrier("g", 3));
    SHOW(group_answer(tids[0]));
    SHOW(group_answer(tids[1]));

    /* A count larger than the group: members that join later count. */
    SHOW(group_do(tids[3], LEAVE, "g", 0, 0));
    for (child = 0; child < 3; child++)
        group_order(tids[child], BARRIER, "g", 5, 0);
    SHOW(waits(tids[0]));
    SHOW(group_do(tids[3], BARRIER, "g", 5, 0));
    SHOW(group_do(tids[3], JOIN, "g", 0, 0));
    group_order(tids[3], BARRIER, "g", 5, 0);
    SHOW(waits(tids[3]));
    SHOW(pvm_barrier("g", 5));
    all_answer();

    /* Many barriers in a row. */
    for (child = 0; child < CHILDREN; child++)
        group_order(tids[child], BARRIERS, "g", CHILDREN + 1, 200);
    SHOW(group_barriers("g", CHILDREN + 1, 200));
    all_answer();

    /* With -1, the size at the moment of a member's arrival counts: a member that arrived before a join expects
     * one member less. */
    SHOW(group_do(tids[3], LEAVE, "g", 0, 0));
    for (child = 0; child < 3; child++)
        group_order(tids[child], BARRIER, "g", -1, 0);
    SHOW(waits(tids[0]));
    SHOW(group_do(tids[3], JOIN, "g", 0, 0));
    SHOW(group_do(tids[3], BARRIER, "g", -1, 0));
    SHOW(pvm_barrier("g", 4));
    for (child = 0; child < 3; child++)
        SHOW(group_answer(tids[child]));
    group_end(CHILDREN, tids);
    pvm_exit();
    return 0;
}
