/* A frozen group after members have left: tasks that have frozen it keep the list of members of that moment. */
#include "group.h"

static int tids[6];

/* Prints what the parent, another member, and a task outside the group get as answers. */
static void ask(int instance, int tid)
{
    SHOW(pvm_gettid("g", instance) == tid);
    SHOW(pvm_getinst("g", tid));
    SHOW(pvm_gsize("g"));
    SHOW(group_do(tids[3], TID, "g", instance, 0) == tid);
    SHOW(group_do(tids[3], INSTANCE, "g", tid, 0));
    SHOW(group_do(tids[3], SIZE, "g", 0, 0));
    SHOW_TID(group_do(tids[4], TID, "g", instance, 0));
    SHOW(group_do(tids[4], INSTANCE, "g", tid, 0));
    SHOW(group_do(tids[4], SIZE, "g", 0, 0));
}

/* Prints the answers that a task outside the group gets if it asks only after a member has left. */
static void late(int instance, int tid)
{
    SHOW_TID(group_do(tids[5], TID, "g", instance, 0));
    SHOW(group_do(tids[5], INSTANCE, "g", tid, 0));
    SHOW(group_do(tids[5], SIZE, "g", 0, 0));
}

/* Prints which tasks receive a member's broadcast. */
static void cast(int tag)
{
    int child;
    SHOW(group_cast("g", tag, tag));
    for (child = 0; child < 4; child++)
        if (pvm_pstat(tids[child]) == PvmOk)
            SHOW(group_do(tids[child], HEAR, "", tag, 0));
}

static void frozen_by_all(void)
{
    int child;
    SHOW(pvm_joingroup("g"));
    for (child = 0; child < 4; child++)
        SHOW(group_do(tids[child], JOIN, "g", 0, 0));
    for (child = 0; child < 4; child++)
        group_order(tids[child], FREEZE, "g", 5, 0);
    SHOW(pvm_freezegroup("g", 5));
    for (child = 0; child < 4; child++)
        SHOW(group_answer(tids[child]));
    ask(1, tids[0]);
    SHOW(pvm_gettid("g", 5));
    SHOW(pvm_getinst("g", tids[4]));

    printf("one leaves\n");
    SHOW(group_do(tids[0], LEAVE, "g", 0, 0));
    ask(1, tids[0]);
    cast(50);
    SHOW(group_do(tids[0], SIZE, "g", 0, 0));
    SHOW_TID(group_do(tids[0], TID, "g", 0, 0));
    SHOW(group_do(tids[0], INSTANCE, "g", tids[1], 0));
    late(1, tids[0]);
    late(2, tids[1]);
    SHOW(group_do(tids[0], BARRIER, "g", 5, 0));
    SHOW(group_do(tids[0], LEAVE, "g", 0, 0));

    printf("one ends\n");
    group_order(tids[1], END, "", 0, 0);
    case_gone(tids[1]);
    ask(2, tids[1]);
    late(2, tids[1]);
    SHOW(group_do(tids[0], SIZE, "g", 0, 0));
    cast(51);

    printf("one is killed\n");
    group_order(tids[2], DIE, "", 0, 0);
    case_gone(tids[2]);
    usleep(100000);
    ask(3, tids[2]);
    cast(52);

    printf("what is done together\n");
    SHOW(pvm_barrier("g", 5));
    SHOW(group_do(tids[3], BARRIER, "g", -1, 0));
    SHOW(group_do(tids[3], SUM, "g", 1, 0));
    SHOW(group_do(tids[3], GATHER, "g", 1, 0));
    SHOW(group_scatter("g", 7, 0));
    SHOW(group_do(tids[3], SCATTER, "g", 1, 0));

    printf("one leaves and would come again\n");
    SHOW(group_do(tids[3], JOIN, "g", 0, 0));
    SHOW(group_do(tids[0], JOIN, "g", 0, 0));
    SHOW(group_do(tids[4], JOIN, "g", 0, 0));
    ask(1, tids[0]);
    SHOW(group_do(tids[4], TID, "g", 0, 0) == tids[0]);

    printf("the parent leaves\n");
    SHOW(pvm_lvgroup("g"));
    SHOW(pvm_gsize("g"));
    SHOW(pvm_gettid("g", 0) == tids[0]);
    SHOW(pvm_getinst("g", pvm_mytid()));
    SHOW(pvm_lvgroup("g"));
    SHOW(group_do(tids[3], LEAVE, "g", 0, 0));
    printf("all have left\n");
    SHOW(pvm_gsize("g"));
    SHOW(group_do(tids[3], SIZE, "g", 0, 0));
    ask(1, tids[0]);
    late(1, tids[0]);
    printf("another group of that name\n");
    SHOW(pvm_joingroup("g"));
    SHOW(pvm_gsize("g"));
    SHOW(group_do(tids[3], SIZE, "g", 0, 0));
    late(0, pvm_mytid());
}

int main(int argc, char **argv)
{
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_setopt(PvmAutoErr, 0);
    group_spawn(6, tids);
    frozen_by_all();
    group_end(6, tids);
    pvm_exit();
    return 0;
}
