/* Joining and leaving: instances, their reuse, and queries. */
#include "group.h"

int main(int argc, char **argv)
{
    int tids[4], child, own;
    case_begin();
    if (argc > 1)
        return group_child();
    own = pvm_mytid();
    group_spawn(4, tids);
    SHOW(pvm_gsize("g"));
    SHOW(pvm_joingroup("g"));
    SHOW(pvm_joingroup("g"));
    for (child = 0; child < 4; child++)
        SHOW(group_do(tids[child], JOIN, "g", 0, 0));
    SHOW(pvm_gsize("g"));
    SHOW(group_do(tids[1], JOIN, "g", 0, 0));
    for (child = 0; child < 4; child++)
        SHOW(pvm_gettid("g", child + 1) == tids[child]);
    SHOW(pvm_gettid("g", 0) == own);
    SHOW(pvm_getinst("g", own));
    SHOW(pvm_getinst("g", tids[3]));

    /* Two unused instances: the lower one is reused first. */
    SHOW(group_do(tids[2], LEAVE, "g", 0, 0));
    SHOW(group_do(tids[0], LEAVE, "g", 0, 0));
    SHOW(group_do(tids[0], LEAVE, "g", 0, 0));
    SHOW(pvm_gsize("g"));
    SHOW(pvm_gettid("g", 1));
    SHOW(pvm_gettid("g", 3));
    SHOW(pvm_getinst("g", tids[2]));
    SHOW(group_do(tids[2], JOIN, "g", 0, 0));
    SHOW(group_do(tids[0], JOIN, "g", 0, 0));
    SHOW(pvm_gettid("g", 1) == tids[2]);
    SHOW(pvm_gettid("g", 3) == tids[0]);

    /* The member with the highest instance leaves and joins again. */
    SHOW(group_do(tids[3], LEAVE, "g", 0, 0));
    SHOW(pvm_gettid("g", 4));
    SHOW(pvm_lvgroup("g"));
    SHOW(pvm_lvgroup("g"));
    SHOW(pvm_gettid("g", 0));
    SHOW(group_do(tids[3], JOIN, "g", 0, 0));
    SHOW(pvm_joingroup("g"));
    SHOW(pvm_gsize("g"));

    /* A task that never joined may query the group; a group whose last member has left no longer exists. */
    SHOW(group_do(tids[1], LEAVE, "g", 0, 0));
    SHOW(group_do(tids[1], SIZE, "g", 0, 0));
    SHOW(group_do(tids[1], TID, "g", 0, 0) == tids[3]);
    SHOW(group_do(tids[1], INSTANCE, "g", own, 0));
    SHOW(group_do(tids[1], INSTANCE, "g", tids[1], 0));
    SHOW(pvm_lvgroup("g"));
    SHOW(group_do(tids[0], LEAVE, "g", 0, 0));
    SHOW(group_do(tids[2], LEAVE, "g", 0, 0));
    SHOW(group_do(tids[3], LEAVE, "g", 0, 0));
    SHOW(pvm_gsize("g"));
    SHOW(pvm_gettid("g", 0));
    SHOW(pvm_getinst("g", own));
    SHOW(pvm_joingroup("g"));
    SHOW(pvm_gsize("g"));

    /* Two names are different if any character differs; names may be long and contain unusual characters. */
    SHOW(pvm_joingroup("g2"));
    SHOW(pvm_gsize("G"));
    SHOW(pvm_joingroup(" "));
    SHOW(pvm_joingroup("a group with a rather long name, such as people give when they may: 0123456789"));
    SHOW(pvm_gsize("a group with a rather long name, such as people give when they may: 0123456789"));
    SHOW(pvm_gsize("a group with a rather long name, such as people give when they may: 012345678"));

    /* A task that leaves the machine leaves its groups. */
    group_end(4, tids);
    pvm_exit();
    pvm_mytid();
    for (child = 0; child < 1000 && pvm_gsize("g2") > 0; child++)
        usleep(2000);
    SHOW(pvm_gsize("g"));
    SHOW(pvm_gsize("g2"));
    SHOW(pvm_joingroup("g"));
    pvm_exit();
    return 0;
}
