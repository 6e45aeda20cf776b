/* A barrier that can no longer be completed fails for the members that wait in it (D5), and the group
 * continues; on PVM the members wait for ever. */
//@ ours-only D5: hangs
//@ timeout 15
#include "group.h"

#define CHILDREN 4
static int tids[CHILDREN];

static void begin(char *group)
{
    int child;
    printf("-- %s\n", group);
    group_spawn(CHILDREN, tids);
    for (child = 0; child < CHILDREN; child++)
        group_do(tids[child], JOIN, group, 0, 0);
    SHOW(pvm_gsize(group));
}

/* Checks that the group works as before, and ends its members. */
static void end(char *group, int first, int count)
{
    int child;
    for (child = first; child < first + count; child++)
        group_order(tids[child], BARRIERS, group, count, 3);
    for (child = first; child < first + count; child++)
        SHOW(group_answer(tids[child]));
    group_end(count, tids + first);
}

static void answers(int first, int count)
{
    while (count-- > 0)
        SHOW(group_answer(tids[first++]));
}

int main(int argc, char **argv)
{
    int child;
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_mytid();

    begin("killed before they arrive");
    group_kill(tids[0], "killed before they arrive", 3);
    for (child = 1; child < CHILDREN; child++)
        group_order(tids[child], BARRIER, "killed before they arrive", 3, 0);
    answers(1, 3);
    end("killed before they arrive", 1, 3);

    begin("killed while others wait");
    for (child = 1; child < CHILDREN; child++)
        group_order(tids[child], BARRIER, "killed while others wait", 4, 0);
    usleep(100000);
    group_kill(tids[0], "killed while others wait", 3);
    answers(1, 3);
    end("killed while others wait", 1, 3);

    begin("killed while it waits");
    for (child = 0; child < CHILDREN - 1; child++)
        group_order(tids[child], BARRIER, "killed while it waits", 4, 0);
    usleep(100000);
    pvm_kill(tids[0]);
    case_gone(tids[0]);
    /* The killed member had arrived at the barrier, so only the fourth member is missing. */
    group_order(tids[3], BARRIER, "killed while it waits", 4, 0);
    answers(1, 3);
    end("killed while it waits", 1, 3);

    begin("killed while two are missing");
    for (child = 0; child < CHILDREN - 2; child++)
        group_order(tids[child], BARRIER, "killed while two are missing", 4, 0);
    usleep(100000);
    pvm_kill(tids[0]);
    pvm_kill(tids[3]);
    case_gone(tids[3]);
    SHOW(group_answer(tids[1]));
    end("killed while two are missing", 1, 2);

    begin("killed after it arrived at a smaller one");
    for (child = 0; child < 2; child++)
        group_order(tids[child], BARRIER, "killed after it arrived at a smaller one", 3, 0);
    usleep(100000);
    pvm_kill(tids[0]);
    case_gone(tids[0]);
    group_order(tids[2], BARRIER, "killed after it arrived at a smaller one", 3, 0);
    answers(1, 2);
    end("killed after it arrived at a smaller one", 1, 3);

    begin("left while others wait");
    for (child = 0; child < CHILDREN - 1; child++)
        group_order(tids[child], BARRIER, "left while others wait", -1, 0);
    usleep(100000);
    SHOW(group_do(tids[3], LEAVE, "left while others wait", 0, 0));
    answers(0, 3);
    group_order(tids[3], END, "", 0, 0);
    end("left while others wait", 0, 3);

    begin("one too many for a given count");
    for (child = 0; child < 2; child++)
        group_order(tids[child], BARRIER, "one too many for a given count", 3, 0);
    usleep(100000);
    pvm_kill(tids[3]);
    case_gone(tids[3]);
    usleep(100000);
    group_order(tids[2], BARRIER, "one too many for a given count", 3, 0);
    answers(0, 3);
    end("one too many for a given count", 0, 3);

    begin("killed while others wait for what it scatters");
    for (child = 1; child < CHILDREN; child++)
        group_order(tids[child], SCATTER, "killed while others wait for what it scatters", 5, 0);
    usleep(100000);
    group_kill(tids[0], "killed while others wait for what it scatters", 3);
    answers(1, 3);
    for (child = 1; child < CHILDREN; child++)
        group_order(tids[child], SUM, "killed while others wait for what it scatters", child, 2);
    answers(1, 3);
    end("killed while others wait for what it scatters", 1, 3);

    begin("killed before its part of a sum");
    for (child = 1; child < CHILDREN; child++)
        group_order(tids[child], SUM, "killed before its part of a sum", 5, 1);
    usleep(100000);
    group_kill(tids[0], "killed before its part of a sum", 3);
    answers(1, 3);
    for (child = 1; child < CHILDREN; child++)
        group_order(tids[child], SUM, "killed before its part of a sum", child, 1);
    answers(1, 3);
    end("killed before its part of a sum", 1, 3);

    begin("killed after its part of a sum");
    SHOW(group_do(tids[0], SUM, "killed after its part of a sum", 50, 1));
    group_kill(tids[0], "killed after its part of a sum", 3);
    for (child = 1; child < CHILDREN; child++)
        group_order(tids[child], SUM, "killed after its part of a sum", child, 1);
    answers(1, 3);
    end("killed after its part of a sum", 1, 3);

    begin("killed after the barrier");
    for (child = 0; child < CHILDREN; child++)
        group_order(tids[child], BARRIER, "killed after the barrier", 4, 0);
    answers(0, 4);
    group_kill(tids[0], "killed after the barrier", 3);
    end("killed after the barrier", 1, 3);
    pvm_exit();
    return 0;
}
