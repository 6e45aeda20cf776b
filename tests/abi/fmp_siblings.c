/* A program that is linked to libfmp alone. `pvm run` starts several tasks of it, which find each other. */
#include <fmp.h>
#include <stdio.h>

#define TASKS 3

int main(void)
{
    int tasks[TASKS], me, i, number, sum = 0;
    int count = fmp_siblings(tasks, TASKS);

    if (count != TASKS || fmp_parent() != FMP_ENOPARENT)
        return 1;
    for (me = 0; tasks[me] != fmp_self(); me++)
        ;
    if (me > 0)
        return fmp_send(tasks[0], me, &me, sizeof me) != 0;
    for (i = 1; i < TASKS; i++) {
        if (fmp_receive(tasks[i], FMP_ANY, &number, sizeof number, NULL) != 0)
            return 1;
        sum += number;
    }
    printf("%d tasks, sum %d\n", count, sum);
    return 0;
}
