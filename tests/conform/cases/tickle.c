/* pvm_tickle. */
//@ fresh
#include "case.h"

static void tickle(int count, int a, int b)
{
    int arguments[10] = {a, b}, results[10], found = -1, i;
    int result = pvm_tickle(count, arguments, &found, results);
    printf("tickle %d %d %d: %d, %d results", count, a, b, result, found);
    if (a != 9)
        for (i = 0; i < found && i < 10; i++)
            printf(" %d", results[i]);
    printf("\n");
}

int main(void)
{
    int arguments[1] = {5}, results[10];
    case_begin();
    pvm_mytid();
    tickle(0, 0, 0);
    tickle(11, 0, 0);
    tickle(-1, 0, 0);
    tickle(1, 0, 0);
    tickle(1, 1, 0);
    tickle(1, 2, 0);
    tickle(1, 3, 0);
    tickle(1, 4, 0);
    tickle(1, 5, 0);
    tickle(2, 6, 4);
    tickle(1, 5, 0);
    tickle(2, 6, 0);
    tickle(2, 7, 5);
    tickle(2, 8, 0x3ffc0000);
    tickle(2, 9, 0);
    tickle(1, 99, 0);
    SHOW(pvm_tickle(1, arguments, NULL, results));
    pvm_exit();
    return 0;
}
