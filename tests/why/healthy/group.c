//@ tasks: 4
/* Barriers, and operations of a group, with members that are late. */
#include "../fault.h"

int main(void)
{
    begin();
    meet();
    for (int round = 0; round < 60; round++) {
        int sum = self, root = round % tasks, mine = self, all[TASKS_MAX];

        if (round % tasks == self)
            usleep(50000);
        checked(pvm_barrier("all", tasks));
        checked(pvm_reduce(PvmSum, &sum, 1, PVM_INT, 3, "all", root));
        checked(pvm_gather(all, &mine, 1, PVM_INT, 4, "all", root));
    }
    checked(pvm_barrier("all", tasks));
    return 0;
}
