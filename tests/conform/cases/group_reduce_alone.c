/* The functions for pvm_reduce called directly, and reductions of one member. */
#include "group.h"

static void each(const char *name, void (*combine)(int *, void *, void *, int *, int *))
{
    int type, info, count;
    for (type = -1; type <= 12; type++) {
        double x[4] = {0}, y[4] = {0};
        count = 1;
        info = 77;
        combine(&type, x, y, &count, &info);
        printf("%s of type %d: info %d\n", name, type, info);
    }
}

static void values(void)
{
    signed char bytes[] = {-1, 100, -128}, more_bytes[] = {1, -100, 127};
    int type = PVM_BYTE, count = 3, info = 0;
    PvmMax(&type, bytes, more_bytes, &count, &info);
    printf("bytes: %d %d %d\n", bytes[0], bytes[1], bytes[2]);
    {
        float x[] = {3, 4, 1, 1, 0, 5}, y[] = {4, 3, -2, 0, 3, 4};
        type = PVM_CPLX;
        PvmMax(&type, x, y, &count, &info);
        printf("complex: %g %g, %g %g, %g %g\n", x[0], x[1], x[2], x[3], x[4], x[5]);
    }
    {
        float x[] = {3, 4, 1, 1, 0, 5}, y[] = {4, 3, -2, 0, 3, 4};
        PvmMin(&type, x, y, &count, &info);
        printf("complex: %g %g, %g %g, %g %g\n", x[0], x[1], x[2], x[3], x[4], x[5]);
    }
    {
        double x[] = {3, 4, 1, 1, 0, 5}, y[] = {4, 3, -2, 0, 3, 4};
        type = PVM_DCPLX;
        PvmProduct(&type, x, y, &count, &info);
        printf("complex: %g %g, %g %g, %g %g\n", x[0], x[1], x[2], x[3], x[4], x[5]);
    }
    {
        short x[] = {30000, -30000, 5}, y[] = {30000, -30000, 6};
        type = PVM_SHORT;
        PvmSum(&type, x, y, &count, &info);
        printf("shorts: %d %d %d\n", x[0], x[1], x[2]);
    }
    {
        long x[] = {1L << 40, -(1L << 40), 5}, y[] = {1, -1, 6};
        type = PVM_LONG;
        PvmSum(&type, x, y, &count, &info);
        printf("longs: %lx %lx %ld\n", x[0], x[1], x[2]);
    }
    count = 0;
    type = PVM_INT;
    info = 5;
    PvmSum(&type, &type, &type, &count, &info);
    printf("none: type %d info %d\n", type, info);
}

static int calls;

static void exclusive_or(int *type, void *x, void *y, int *count, int *info)
{
    int index;
    calls++;
    for (index = 0; index < *count; index++)
        ((int *)x)[index] ^= ((int *)y)[index];
    *info = *type == PVM_INT ? 0 : -1;
}

int main(void)
{
    int data[3] = {5, 6, 7};
    case_begin();
    each("PvmMax", PvmMax);
    each("PvmMin", PvmMin);
    each("PvmSum", PvmSum);
    each("PvmProduct", PvmProduct);
    values();
    SHOW(pvm_joingroup("g"));
    SHOW(pvm_reduce(exclusive_or, data, 3, PVM_INT, 1, "g", 0));
    printf("%d %d %d after %d calls\n", data[0], data[1], data[2], calls);
    SHOW(pvm_reduce(PvmSum, data, 3, PVM_UINT, 1, "g", 0));
    SHOW(pvm_reduce(PvmSum, data, 1, PVM_ULONG, 1, "g", 0));
    SHOW(pvm_reduce(PvmSum, data, 1, PVM_USHORT, 1, "g", 0));
    SHOW(pvm_reduce(PvmSum, data, 1, PVM_BYTE, 1, "g", 0));
    pvm_exit();
    return 0;
}
