/* pvm_gather and pvm_scatter: every type, several roots, and groups with an unused instance. */
//@ differs D1: member 0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 60 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 20 => member 0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
//@ differs D1: member 1: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 20 => member 1: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
//@ differs D1: member 2: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 0 0 0 0 0 0 0 0 0 0 0 0 0 60 0 => member 2: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
//@ differs D1: member 3: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 20 => member 3: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
//@ differs D20: group_gather("g", 5, 0): 563 => group_gather("g", 5, 0): 567
#include "group.h"

#define MEMBERS 4
#define ITEMS 5

static int sizes[] = {1, 1, 2, 4, 4, 8, 8, 16, 8, 2, 4, 8};
static char all[MEMBERS * ITEMS * 16 + 1], mine[ITEMS * 16 + 1];

static int mark(int member, int byte)
{
    return (member * 50 + byte) % 251;
}

/* Returns whether the blocks at the root are those of the members. */
static int gathered(int own, int type, int root)
{
    int bytes = sizes[type] * ITEMS, byte, member, wrong = 0, result;
    memset(all, 7, sizeof all);
    for (byte = 0; byte < bytes; byte++)
        mine[byte] = (char)mark(own, byte);
    result = pvm_gather(all, mine, ITEMS, type, 20, "g", root);
    if (result < 0)
        return result;
    for (member = 0; own == root && member < MEMBERS; member++)
        for (byte = 0; byte < bytes; byte++)
            wrong += all[member * bytes + byte] != (char)mark(member, byte);
    return wrong + (all[own == root ? MEMBERS * bytes : 0] != 7);
}

static int scattered(int own, int type, int root)
{
    int bytes = sizes[type] * ITEMS, byte, member, wrong = 0, result;
    memset(mine, 7, sizeof mine);
    for (member = 0; own == root && member < MEMBERS; member++)
        for (byte = 0; byte < bytes; byte++)
            all[member * bytes + byte] = (char)mark(member, byte);
    result = pvm_scatter(mine, all, ITEMS, type, 21, "g", root);
    if (result < 0)
        return result;
    for (byte = 0; byte < bytes; byte++)
        wrong += mine[byte] != (char)mark(own, byte);
    return wrong + (mine[bytes] != 7);
}

static int member(int own, int *results)
{
    int type, root, step = 0;
    for (root = 0; root < MEMBERS; root += 2)
        for (type = PVM_BYTE; type <= PVM_LONG; type++) {
            pvm_barrier("g", MEMBERS);
            results[step++] = gathered(own, type, root);
            pvm_barrier("g", MEMBERS);
            results[step++] = scattered(own, type, root);
        }
    return step;
}

static int child(void)
{
    int own = pvm_joingroup("g"), results[64], steps;
    steps = member(own, results);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(results, steps, 1);
    pvm_send(pvm_parent(), 10 + own);
    return group_child();
}

static int tids[MEMBERS];

static void call(int what, int value, int root)
{
    int turn;
    for (turn = 1; turn < MEMBERS; turn++)
        if (tids[turn] > 0)
            group_order(tids[turn], what, "g", value + turn, root);
}

static void answers(void)
{
    int turn;
    for (turn = 1; turn < MEMBERS; turn++)
        if (tids[turn] > 0)
            SHOW(group_answer(tids[turn]));
}

int main(int argc, char **argv)
{
    int started[MEMBERS - 1], results[64], steps, step, turn;
    case_begin();
    pvm_mytid();
    if (argc > 1)
        return child();
    SHOW(pvm_joingroup("g"));
    group_spawn(MEMBERS - 1, started);
    steps = member(0, results);
    for (turn = 0; turn < MEMBERS; turn++) {
        if (turn > 0 && case_receive(-1, 10 + turn, 5) <= 0)
            break;
        if (turn > 0)
            pvm_upkint(results, steps, 1);
        tids[turn] = pvm_gettid("g", turn);
        printf("member %d:", turn);
        for (step = 0; step < steps; step++)
            printf(" %d", results[step]);
        printf("\n");
    }

    /* The member with the highest instance leaves, so no instance in between is unused. */
    SHOW(group_do(tids[3], LEAVE, "g", 0, 0));
    turn = tids[3];
    tids[3] = 0;
    call(GATHER, 1, 0);
    SHOW(group_gather("g", 1, 0));
    answers();
    call(SCATTER, 2, 1);
    SHOW(group_scatter("g", 2, 1));
    answers();
    group_end(1, &turn);

    /* An unused instance: the root returns an error, and no messages are left over for the next operation. */
    turn = tids[1];
    SHOW(group_do(turn, LEAVE, "g", 0, 0));
    tids[1] = 0;
    call(GATHER, 1, 0);
    pvm_setopt(PvmAutoErr, 0);
    SHOW(group_gather("g", 1, 0));
    answers();
    SHOW(group_do(turn, JOIN, "g", 0, 0));
    tids[1] = turn;
    call(GATHER, 5, 0);
    SHOW(group_gather("g", 5, 0));
    answers();
    call(SCATTER, 3, 0);
    SHOW(group_scatter("g", 3, 0));
    answers();
    group_end(2, tids + 1);
    pvm_exit();
    return 0;
}
