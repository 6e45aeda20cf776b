//@ tasks: 2
/* Long and short messages in both directions as fast as they go. */
#include "../fault.h"

int main(void)
{
    static double data[200000];

    begin();
    for (int round = 0; round < 20000; round++) {
        int count = round % 100 == 0 ? 200000 : 3, other = tid_of[1 - self];

        if (self == 0 && round % 10 == 0)
            usleep(1000);
        if (self == round % 2)
            checked(pvm_psend(other, 1, data, count, PVM_DOUBLE));
        else
            checked(pvm_precv(other, 1, data, count, PVM_DOUBLE, NULL, NULL, NULL));
    }
    return 0;
}
