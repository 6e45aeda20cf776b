/* Members are killed again and again at random moments of barriers and reductions (D5): every call of a living
 * member returns, and the remaining group works. */
//@ ours-only D5: skip
//@ timeout 60
//@ daemon-env HPVM_BARRIER_PATIENCE=1
#include "group.h"

#define TASKS 16
#define KILLED 12
/* The number of checks in a round: all joins, the answers and barriers of the survivors, and a sum. */
#define WELL (TASKS + 2 * (TASKS - KILLED) + 1)
static int tids[TASKS];

/* Returns whether a child may give this answer. */
static int is_well(int answer)
{
    return answer >= 0 || answer == PvmNoTask || answer == PvmMismatch || answer == PvmNoInst;
}

static int round_of(int call, int pause)
{
    char name[32];
    int task, well = 0, sum;
    snprintf(name, sizeof name, "call %d pause %d", call, pause);
    group_spawn(TASKS, tids);
    for (task = 0; task < TASKS; task++)
        well += group_do(tids[task], JOIN, name, 0, 0) == task;
    for (task = 0; task < TASKS; task++)
        group_order(tids[task], call, name, call == SUMS ? 300 : 100000, TASKS - 1);
    for (task = 0; task < KILLED; task++) {
        usleep((unsigned)pause);
        pvm_sendsig(tids[task], SIGKILL);
    }
    for (task = KILLED; task < TASKS; task++)
        well += is_well(group_answer(tids[task]));
    for (task = 0; task < KILLED; task++)
        case_gone(tids[task]);
    /* The remaining children meet once more; those that had left join again. */
    for (task = KILLED; task < TASKS; task++)
        group_do(tids[task], JOIN, name, 0, 0);
    for (task = KILLED; task < TASKS; task++)
        group_order(tids[task], BARRIERS, name, TASKS - KILLED, 10);
    for (task = KILLED; task < TASKS; task++)
        well += group_answer(tids[task]) == 0;
    for (task = KILLED; task < TASKS; task++)
        group_order(tids[task], SUM, name, 100 + task, pvm_getinst(name, tids[TASKS - 1]));
    for (task = KILLED, sum = 0; task < TASKS; task++)
        sum += group_answer(tids[task]);
    well += sum == 4 * 100 + 12 + 13 + 14 + 15;
    group_end(TASKS - KILLED, tids + KILLED);
    return well;
}

int main(int argc, char **argv)
{
    int pause;
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_mytid();
    for (pause = 1; pause <= 10000; pause *= 10)
        printf("barriers, %d us between deaths: %d of %d well\n", pause, round_of(STORM, pause), WELL);
    for (pause = 1; pause <= 10000; pause *= 10)
        printf("sums, %d us between deaths: %d of %d well\n", pause, round_of(SUMS, pause), WELL);
    pvm_exit();
    return 0;
}
