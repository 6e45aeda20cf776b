/* A frozen group: nobody can join, the members are fixed, and the group ends when one of them leaves. */
//@ differs D5: group_do(tids[2], SUM, "g", 1, 3): -1000 => group_do(tids[2], SUM, "g", 1, 3): -19
#include "group.h"

static int tids[4];

static void order(int call, int first, int second)
{
    int child;
    for (child = 0; child < 3; child++)
        group_order(tids[child], call, "g", first, second);
}

static void answer(void)
{
    int child;
    for (child = 0; child < 3; child++)
        SHOW(group_answer(tids[child]));
}

int main(int argc, char **argv)
{
    int child;
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_mytid();
    group_spawn(4, tids);
    SHOW(pvm_joingroup("g"));
    for (child = 0; child < 3; child++)
        SHOW(group_do(tids[child], JOIN, "g", 0, 0));
    SHOW(group_do(tids[3], FREEZE, "g", 4, 0));
    order(FREEZE, 4, 0);
    usleep(50000);
    SHOW(pvm_probe(tids[0], GROUP_ANSWER));
    SHOW(pvm_freezegroup("g", 4));
    answer();
    SHOW(pvm_freezegroup("g", 4));
    SHOW(group_do(tids[0], FREEZE, "g", -1, 0));
    SHOW(group_do(tids[3], JOIN, "g", 0, 0));
    SHOW(group_do(tids[0], JOIN, "g", 0, 0));
    SHOW(pvm_gsize("g"));
    SHOW(group_do(tids[3], SIZE, "g", 0, 0));
    SHOW(pvm_gettid("g", 2) == tids[1]);
    SHOW(pvm_gettid("g", 4));
    SHOW(pvm_getinst("g", tids[2]));
    SHOW(group_do(tids[3], INSTANCE, "g", tids[2], 0));

    /* All collective calls work in a frozen group. */
    order(BARRIER, 4, 0);
    SHOW(pvm_barrier("g", 4));
    answer();
    order(BARRIERS, -1, 50);
    SHOW(group_barriers("g", -1, 50));
    answer();
    order(SUM, 5, 0);
    SHOW(group_sum("g", 100, 0));
    answer();
    order(SUM, 7, 2);
    SHOW(group_sum("g", 100, 2));
    answer();
    order(GATHER, 3, 0);
    SHOW(group_gather("g", 4, 0));
    answer();
    order(SCATTER, 5, 1);
    SHOW(group_scatter("g", 6, 1));
    answer();
    SHOW(group_cast("g", 33, 44));
    order(HEAR, 33, 0);
    answer();
    SHOW(group_do(tids[3], CAST, "g", 35, 46));
    SHOW(group_hear(35));

    /* One member leaves while another waits for it: the group no longer exists. */
    group_order(tids[1], BARRIER, "g", 4, 0);
    usleep(50000);
    SHOW(group_do(tids[0], LEAVE, "g", 0, 0));
    SHOW(group_answer(tids[1]));
    SHOW(pvm_barrier("g", 4));
    group_patience = 1;
    SHOW(group_do(tids[2], SUM, "g", 1, 3));
    group_end(4, tids);
    pvm_exit();
    return 0;
}
