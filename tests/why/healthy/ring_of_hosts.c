//@ tasks: 3
//@ hosts: 3
/* A token goes round three hosts, with long bodies now and then, and barriers. */
#include "../fault.h"

int main(void)
{
    static double data[100000];
    int from, to;

    begin();
    meet();
    from = (self + tasks - 1) % tasks;
    to = (self + 1) % tasks;
    for (int round = 0; round < 150; round++) {
        if (self != 0)
            checked(pvm_precv(tid_of[from], 1, data, 100000, PVM_DOUBLE, NULL, NULL, NULL));
        if (self == 0 && round % 10 == 0)
            usleep(100000);
        checked(pvm_psend(tid_of[to], 1, data, round % 3 == 0 ? 100000 : 1, PVM_DOUBLE));
        if (self == 0)
            checked(pvm_precv(tid_of[from], 1, data, 100000, PVM_DOUBLE, NULL, NULL, NULL));
        if (round % 5 == 0)
            checked(pvm_barrier("all", tasks));
    }
    return 0;
}
