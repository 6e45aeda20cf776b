/* Members pass a null pointer to a collective call: nobody waits for them, and the next call is not disturbed. */
//@ ours-only D20: skip
//@ unordered
#include "group.h"

#define MEMBERS 3

enum { SUMMED, GATHERED, SCATTERED };

static int all[MEMBERS], mine;

static int call(int what, int root, int without)
{
    mine = 5;
    switch (what) {
    case SUMMED: return pvm_reduce(PvmSum, without ? NULL : &mine, 1, PVM_INT, 1, "g", root);
    case GATHERED: return pvm_gather(without ? NULL : all, without > 1 ? NULL : &mine, 1, PVM_INT, 2, "g", root);
    default: return pvm_scatter(without ? NULL : &mine, without > 1 ? NULL : all, 1, PVM_INT, 3, "g", root);
    }
}

/* For each collective call and each member: first this member passes a null pointer, then all members pass
 * memory. */
static void rounds(int own)
{
    int what, wrong, root = 1;
    for (what = SUMMED; what <= SCATTERED; what++)
        for (wrong = 0; wrong < MEMBERS; wrong++) {
            int bad, good, value, member;
            pvm_barrier("g", MEMBERS);
            bad = call(what, root, own == wrong && !(what == GATHERED && own != root) ? 1 : own == wrong ? 2 : 0);
            for (member = 0; member < MEMBERS; member++)
                all[member] = 10 + member;
            good = call(what, root, 0);
            value = what == SCATTERED ? mine : own == root ? (what == SUMMED ? mine : all[0] + all[1] + all[2]) : 0;
            if (own == root || own == wrong)
                printf("call %d, %d wrong, member %d: %d, then %d %d\n", what, wrong, own, bad, good, value);
            pvm_barrier("g", MEMBERS);
        }
}

int main(int argc, char **argv)
{
    int tids[MEMBERS - 1], own;
    case_begin();
    pvm_setopt(PvmAutoErr, 0);
    pvm_mytid();
    if (argc == 1) {
        pvm_catchout(stdout);
        pvm_setopt(PvmShowTids, 0);
        if (pvm_joingroup("g") != 0 || case_spawn("child", MEMBERS - 1, tids) != MEMBERS - 1)
            return 1;
        own = 0;
    } else {
        own = pvm_joingroup("g");
    }
    rounds(own);
    pvm_exit();
    return 0;
}
