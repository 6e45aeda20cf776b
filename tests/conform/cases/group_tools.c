/* Debian's pvm_gstat and pvmgroups, unmodified: they send requests to the group server. */
//@ fresh
//@ unordered
//@ needs $DEBIAN_PVM/bin/pvm_gstat
//@ needs $DEBIAN_PVM/bin/pvmgroups
//@ runs pvm_gstat pvmgroups
#include "group.h"
#include <sys/wait.h>

/* More than the ten members for which PVM first allocates memory in a group. */
#define CHILDREN 12

/* Prints the program's output with `mark` before each line, since the runner sorts the lines; replaces tids as
 * SHOW_TID does.
 */
static void run(const char *mark, const char *program)
{
    char line[1000], *number;
    FILE *output = popen(program, "r");
    int status;
    while (fgets(line, sizeof line, output)) {
        while ((number = strstr(line, "0x"))) {
            *number = 't';
            memmove(number + 1, number + 2, strlen(number + 1));
        }
        printf("%s: %s", mark, line);
    }
    status = pclose(output);
    printf("%s: %s gave %d\n", mark, program, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* Returns whether the daemon's log names the group within a second. */
static int logged(const char *group)
{
    char command[500];
    int turns;
    snprintf(command, sizeof command, "grep -q 'group:* %s' $PVM_TMP/pvml.*", group);
    for (turns = 0; turns < 50; turns++) {
        if (system(command) == 0)
            return 1;
        usleep(20000);
    }
    return 0;
}

/* Spawns children on all hosts in turn: PVM's group server is a task that takes a turn, too. */
static void spread(int *tids)
{
    char *arguments[] = {"child", NULL};
    struct pvmhostinfo *hosts;
    int child, count;
    pvm_config(&count, NULL, &hosts);
    for (child = 0; child < CHILDREN; child++)
        if (pvm_spawn(case_path(), arguments, PvmTaskHost, hosts[child % count].hi_name, 1, &tids[child]) != 1)
            printf("no child %d\n", child);
}

int main(int argc, char **argv)
{
    int tids[CHILDREN], child;
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_mytid();
    run("nobody", "pvm_gstat");
    spread(tids);
    for (child = 0; child < CHILDREN; child++)
        printf("t%x\n", tids[child]);
    for (child = 0; child < 3; child++)
        group_do(tids[child], JOIN, "small", 0, 0);
    for (child = 0; child < CHILDREN; child++)
        group_do(tids[child], JOIN, "large", 0, 0);
    group_do(tids[7], JOIN, "alone", 0, 0);
    run("joined", "pvm_gstat");
    for (child = 0; child < 2; child++) {
        group_order(tids[child], BARRIER, "small", 3, 0);
        usleep(100000);
    }
    SHOW(group_do(tids[5], LEAVE, "large", 0, 0));
    run("waiting", "pvm_gstat");
    run("dump", "pvmgroups");
    SHOW(logged("small"));
    SHOW(logged("large"));
    group_order(tids[2], BARRIER, "small", 3, 0);
    for (child = 0; child < 3; child++)
        SHOW(group_answer(tids[child]));
    group_end(CHILDREN, tids);
    usleep(200000);
    run("ended", "pvm_gstat");
    pvm_exit();
    return 0;
}
