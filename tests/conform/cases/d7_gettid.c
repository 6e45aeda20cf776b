/* An instance just past the end does not exist (D7). */
#include "group.h"
//@ differs D7: instance 10: 257 => instance 10: -21

int main(int argc, char **argv)
{
    int tids[11], child;
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_mytid();
    SHOW(pvm_joingroup("g"));
    printf("instance 1: %d\n", pvm_gettid("g", 1));
    printf("instance 9: %d\n", pvm_gettid("g", 9));
    printf("instance 10: %d\n", pvm_gettid("g", 10));
    printf("instance 11: %d\n", pvm_gettid("g", 11));
    group_spawn(11, tids);
    for (child = 0; child < 11; child++)
        SHOW(group_do(tids[child], JOIN, "g", 0, 0));
    printf("instance 11: %d\n", pvm_gettid("g", 11) == tids[10]);
    printf("instance 12: %d\n", pvm_gettid("g", 12));
    group_end(11, tids);
    pvm_exit();
    return 0;
}
