/* User functions for pvm_reduce: their arguments, how they stop a reduction, and what happens to the data of
 * members that are not the root. */
//@ may-differ D20: root, step 4: 99 => root, step 4: 117
//@ may-differ D20: root, step 4: 105 => root, step 4: 117
//@ may-differ D20: root, step 4: 111 => root, step 4: 117
//@ may-differ D20: root, step 4: 123 => root, step 4: 117
//@ may-differ D20: root, step 4: 129 => root, step 4: 117
//@ may-differ D20: root, step 4: 135 => root, step 4: 117
#include "group.h"

static int calls, lengths, wrong_types;

static void exclusive_or(int *type, void *x, void *y, int *count, int *info)
{
    int index;
    calls++;
    lengths += *count;
    wrong_types += *type != PVM_INT;
    for (index = 0; index < *count; index++)
        ((int *)x)[index] ^= ((int *)y)[index];
    *info = 0;
}

static void refuses(int *type, void *x, void *y, int *count, int *info)
{
    (void)type, (void)x, (void)y, (void)count;
    *info = -5;
}

/* A function that calls the library. */
static void curious(int *type, void *x, void *y, int *count, int *info)
{
    *info = pvm_gsize("g") == 4 && pvm_mytid() > 0 ? 0 : -1;
    if (*info == 0)
        PvmSum(type, x, y, count, info);
}

static int data[50000];

static int reduce(int own, void (*combine)(int *, void *, void *, int *, int *), int count, int root)
{
    int index, result, sum = 0;
    for (index = 0; index < count; index++)
        data[index] = index * 8 + (1 << own);
    result = pvm_reduce(combine, data, count, PVM_INT, 5, "g", root);
    for (index = 0; index < count; index++)
        sum += data[index] - index * 8;
    return result < 0 ? result : sum;
}

static int member(int own, int *results)
{
    int step = 0;
    pvm_setopt(PvmAutoErr, 0);
    pvm_barrier("g", 4);
    results[step++] = reduce(own, exclusive_or, 1, 0);
    pvm_barrier("g", 4);
    results[step++] = reduce(own, exclusive_or, 50000, 0);
    pvm_barrier("g", 4);
    results[step++] = reduce(own, curious, 3, 0);
    pvm_barrier("g", 4);
    results[step++] = reduce(own, refuses, 3, 0);
    pvm_barrier("g", 4);
    results[step++] = reduce(own, PvmSum, 3, 0);
    pvm_barrier("g", 4);
    return step;
}

int main(int argc, char **argv)
{
    int tids[3], own, results[8], steps, step, turn, index;
    case_begin();
    pvm_mytid();
    if (argc > 1) {
        own = pvm_joingroup("g");
        steps = member(own, results);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(results, steps, 1);
        pvm_send(pvm_parent(), 10 + own);
        pvm_exit();
        return 0;
    }
    own = pvm_joingroup("g");
    group_spawn(3, tids);
    steps = member(own, results);
    for (step = 0; step < steps; step++)
        printf("root, step %d: %d\n", step, results[step]);
    printf("%d calls, %d items, %d wrong types\n", calls, lengths, wrong_types);
    for (turn = 1; turn < 4; turn++) {
        if (case_receive(-1, 10 + turn, 5) <= 0)
            break;
        pvm_upkint(results, steps, 1);
        for (step = index = 0; step < steps; step++)
            index += results[step] == (step == 1 ? 50000 : step == 0 ? 1 : 3) << turn;
        printf("member %d: as it was in %d of %d\n", turn, index, steps);
    }
    pvm_exit();
    return 0;
}
