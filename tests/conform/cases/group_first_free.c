/* The instance of tid -1: the lowest number that no member has. */
#include "group.h"

static int tids[10];

int main(int argc, char **argv)
{
    int child;
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_setopt(PvmAutoErr, 0);
    SHOW(pvm_getinst("g", -1));
    group_spawn(10, tids);
    SHOW(pvm_joingroup("g"));
    SHOW(pvm_getinst("g", -1));
    for (child = 0; child < 3; child++) {
        SHOW(group_do(tids[child], JOIN, "g", 0, 0));
        SHOW(pvm_getinst("g", -1));
    }
    SHOW(group_do(tids[0], INSTANCE, "g", -1, 0));
    SHOW(group_do(tids[3], INSTANCE, "g", -1, 0));
    SHOW(pvm_getinst("g", 0));
    SHOW(pvm_getinst("g", -2));
    SHOW(pvm_getinst("", -1));
    SHOW(group_do(tids[1], LEAVE, "g", 0, 0));
    SHOW(pvm_getinst("g", -1));
    SHOW(group_do(tids[0], LEAVE, "g", 0, 0));
    SHOW(pvm_getinst("g", -1));
    SHOW(group_do(tids[0], JOIN, "g", 0, 0));
    SHOW(pvm_getinst("g", -1));
    SHOW(group_do(tids[1], JOIN, "g", 0, 0));
    for (child = 3; child < 8; child++) {
        SHOW(group_do(tids[child], JOIN, "g", 0, 0));
        SHOW(pvm_getinst("g", -1));
    }
    for (child = 3; child < 8; child++)
        SHOW(group_do(tids[child], LEAVE, "g", 0, 0));
    SHOW(pvm_getinst("g", -1));

    /* The same in a frozen group. */
    for (child = 0; child < 3; child++)
        group_order(tids[child], FREEZE, "g", 4, 0);
    SHOW(pvm_freezegroup("g", 4));
    for (child = 0; child < 3; child++)
        SHOW(group_answer(tids[child]));
    SHOW(pvm_getinst("g", -1));
    SHOW(group_do(tids[3], INSTANCE, "g", -1, 0));
    SHOW(group_do(tids[1], LEAVE, "g", 0, 0));
    SHOW(pvm_getinst("g", -1));
    SHOW(group_do(tids[3], INSTANCE, "g", -1, 0));
    SHOW(group_do(tids[1], INSTANCE, "g", -1, 0));
    SHOW(group_do(tids[4], INSTANCE, "g", -1, 0));

    /* A group with an unused instance, before and after it is frozen. */
    SHOW(pvm_joingroup("h"));
    for (child = 0; child < 3; child++)
        SHOW(group_do(tids[child], JOIN, "h", 0, 0));
    SHOW(group_do(tids[1], LEAVE, "h", 0, 0));
    group_order(tids[0], FREEZE, "h", 3, 0);
    group_order(tids[2], FREEZE, "h", 3, 0);
    SHOW(pvm_freezegroup("h", 3));
    SHOW(group_answer(tids[0]));
    SHOW(group_answer(tids[2]));
    SHOW(pvm_getinst("h", -1));
    SHOW(group_do(tids[5], INSTANCE, "h", -1, 0));
    SHOW(pvm_gsize("h"));
    SHOW(pvm_gettid("h", 2));
    group_end(10, tids);
    pvm_exit();
    return 0;
}
