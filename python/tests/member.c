/* A member of the group "mixed" in C: adds 1, 2, 3 to a sum with tag 5, and gives 4, 5 to a gather with tag 6. */
#include <pvm3.h>

int main(void)
{
    double values[] = {1, 2, 3};
    float row[] = {4, 5};
    int both = 2;

    pvm_joingroup("mixed");
    pvm_barrier("mixed", both);
    pvm_reduce(PvmSum, values, 3, PVM_DOUBLE, 5, "mixed", 0);
    pvm_gather(0, row, 2, PVM_FLOAT, 6, "mixed", 0);
    pvm_barrier("mixed", both);
    pvm_exit();
    return 0;
}
