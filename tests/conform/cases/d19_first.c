/* Several tasks use groups for the first time at the same moment (D19): they still get one common group. */
//@ ours-only D19: skip
//@ fresh
#include "group.h"

#define CHILDREN 12

int main(int argc, char **argv)
{
    int tids[CHILDREN], child, taken[CHILDREN + 1] = {0}, instance;
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_mytid();
    group_spawn(CHILDREN, tids);
    for (child = 0; child < CHILDREN; child++)
        group_order(tids[child], JOIN, "g", 0, 0);
    for (child = 0; child < CHILDREN; child++) {
        instance = group_answer(tids[child]);
        if (instance < 0 || instance >= CHILDREN || taken[instance]++)
            printf("instance %d\n", instance);
    }
    SHOW(pvm_gsize("g"));
    group_end(CHILDREN, tids);
    pvm_exit();
    return 0;
}
