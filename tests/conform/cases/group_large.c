/* Blocks of all sizes, up to those that are too large for the queues, for the pieces of the heap and for
 * one-sided copies; in groups of two and more, and with members that are ahead of the others. */
//@ timeout 60
#include "group.h"

#define MEMBERS 3
#define LARGEST (36 << 20)

static unsigned char *mine, *all;

static unsigned char mark(int member, int round, int at)
{
    return (unsigned char)(member * 37 + round * 11 + at + (at >> 12));
}

static int gathered(int own, int bytes, int round)
{
    int at, member, wrong = 0, step = bytes < 5000 ? 1 : 4093;
    for (at = 0; at < bytes; at++)
        mine[at] = mark(own, round, at);
    if (pvm_gather(all, mine, bytes, PVM_BYTE, 30, "g", 1) < 0)
        return -1;
    for (member = 0; own == 1 && member < MEMBERS; member++)
        for (at = 0; at < bytes; at += step)
            wrong += all[(size_t)member * bytes + at] != mark(member, round, at);
    return wrong;
}

static int scattered(int own, int bytes, int round)
{
    int at, member, wrong = 0, step = bytes < 5000 ? 1 : 4093;
    for (member = 0; own == 1 && member < MEMBERS; member++)
        for (at = 0; at < bytes; at++)
            all[(size_t)member * bytes + at] = mark(member, round, at);
    memset(mine, 0, (size_t)bytes);
    if (pvm_scatter(mine, all, bytes, PVM_BYTE, 31, "g", 1) < 0)
        return -1;
    for (at = 0; at < bytes; at += step)
        wrong += mine[at] != mark(own, round, at);
    return wrong;
}

static int reduced(int own, int bytes, int round)
{
    int at, wrong = 0, count = bytes / 4, *data = (int *)mine;
    for (at = 0; at < count; at++)
        data[at] = at + own * 1000 + round;
    if (pvm_reduce(PvmSum, data, count, PVM_INT, 32, "g", 1) < 0)
        return -1;
    for (at = 0; own == 1 && at < count; at++)
        wrong += data[at] != MEMBERS * (at + round) + 3000;
    return wrong;
}

static int run(int own, int bytes)
{
    int round, wrong = 0, rounds = bytes > 1 << 20 ? 2 : 20;
    for (round = 0; round < rounds; round++) {
        wrong += gathered(own, bytes, round);
        wrong += reduced(own, bytes, round);
        wrong += scattered(own, bytes, round);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    static int sizes[] = {4, 64, 500, 504, 508, 4096, 12284, 12288, 40000, 300000, 1 << 20, LARGEST};
    int tids[MEMBERS - 1], own, turn, wrong, answer;
    case_begin();
    mine = malloc(LARGEST);
    all = malloc((size_t)MEMBERS * LARGEST);
    own = pvm_joingroup("g");
    if (argc < 2) {
        printf("%d\n", own);
        group_spawn(MEMBERS - 1, tids);
    }
    pvm_barrier("g", MEMBERS);
    for (turn = 0; turn < (int)(sizeof sizes / sizeof sizes[0]); turn++) {
        wrong = run(own, sizes[turn]);
        answer = pvm_reduce(PvmSum, &wrong, 1, PVM_INT, 33, "g", 0);
        if (argc < 2)
            printf("%d bytes: %d wrong, %d\n", sizes[turn], wrong, answer);
    }
    pvm_barrier("g", MEMBERS);
    pvm_exit();
    return 0;
}
