/* Threads of one task wait at the same time in barriers of different groups, in a collective call, and for a
 * message. Their events happen in any order, and each thread continues after its own. */
//@ ours-only 2.0: skip
#include "group.h"
#include <pthread.h>

static int tids[2];

static void *at_barrier(void *group)
{
    static int results[8];
    int *result = &results[((char *)group)[0] - 'a'];
    *result = pvm_barrier(group, 2);
    return result;
}

static void *at_sum(void *group)
{
    static int value;
    value = 5;
    if (pvm_reduce(PvmSum, &value, 1, PVM_INT, 7, group, 0) < 0)
        value = -1;
    return &value;
}

static void *at_message(void *nothing)
{
    static int value;
    (void)nothing;
    pvm_recv(tids[0], GROUP_ANSWER);
    pvm_upkint(&value, 1, 1);
    return &value;
}

static int joined(pthread_t thread)
{
    void *result;
    pthread_join(thread, &result);
    return *(int *)result;
}

static void round_of(int order)
{
    pthread_t a, b, sum, message;
    pthread_create(&a, NULL, at_barrier, "a");
    usleep(20000);
    pthread_create(&sum, NULL, at_sum, "c");
    usleep(20000);
    pthread_create(&b, NULL, at_barrier, "b");
    pthread_create(&message, NULL, at_message, NULL);
    usleep(50000);
    if (order == 0) {
        group_order(tids[1], BARRIER, "b", 2, 0);
        SHOW(joined(b));
        group_order(tids[1], SUM, "c", 6, 0);
        SHOW(joined(sum));
        group_order(tids[1], BARRIER, "a", 2, 0);
        SHOW(joined(a));
        group_order(tids[0], SIZE, "b", 0, 0);
        SHOW(joined(message));
    } else {
        group_order(tids[0], SIZE, "b", 0, 0);
        SHOW(joined(message));
        group_order(tids[1], BARRIER, "a", 2, 0);
        SHOW(joined(a));
        group_order(tids[1], SUM, "c", 6, 0);
        SHOW(joined(sum));
        group_order(tids[1], BARRIER, "b", 2, 0);
        SHOW(joined(b));
    }
    SHOW(group_answer(tids[1]));
    SHOW(group_answer(tids[1]));
    SHOW(group_answer(tids[1]));
}

int main(int argc, char **argv)
{
    int round;
    char *group, name[2] = "a";
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_mytid();
    group_spawn(2, tids);
    for (group = "abc"; *group; group++) {
        name[0] = *group;
        SHOW(pvm_joingroup(name));
        SHOW(group_do(tids[1], JOIN, name, 0, 0));
    }
    for (round = 0; round < 4; round++)
        round_of(round % 2);
    group_end(2, tids);
    pvm_exit();
    return 0;
}
