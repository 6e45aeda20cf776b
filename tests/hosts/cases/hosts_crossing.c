/* Four tasks on four hosts send long messages in a ring, each before it receives, and two tasks to each other. Each
 * overwrites what it has sent as soon as the call returns. */
//@ ours-only D3: skip
//@ timeout 120
#include "hosts.h"

#define LONGEST (9 << 20)
#define ROUNDS 4

static const int sizes[] = {100000, 600000, 3 << 20, LONGEST};
#define SIZES (int)(sizeof sizes / sizeof sizes[0])

static char *sent, *received;

static char byte_at(int place, int seed)
{
    return (char)(place * 7 + (place >> 9) * 13 + seed);
}

/* Sends to one task, then receives from another. Returns the number of wrong messages. */
static int shift(int to, int from, int size, int seed)
{
    int i, source, tag, length = -1;
    for (i = 0; i < size; i++)
        sent[i] = byte_at(i, seed);
    if (pvm_psend(to, 2, sent, size, PVM_BYTE) < 0)
        return 1;
    memset(sent, 0x55, (size_t)size);
    memset(received, 0, (size_t)size);
    if (pvm_precv(from, 2, received, LONGEST, PVM_BYTE, &source, &tag, &length) < 0 || length != size)
        return 1;
    for (i = 0; i < size; i++)
        if (received[i] != byte_at(i, seed))
            return 1;
    return 0;
}

/* Takes part in all shifts. Returns the number of wrong messages. */
static int shifts(const int *tids, int number, int route)
{
    int s, round, wrong = 0, right = tids[(number + 1) % 4], left = tids[(number + 3) % 4], opposite = tids[number ^ 2];
    pvm_setopt(PvmRoute, route);
    for (s = 0; s < SIZES; s++)
        for (round = 0; round < ROUNDS; round++) {
            wrong += shift(right, left, sizes[s], s + round);
            wrong += shift(opposite, opposite, sizes[s], s + round + 1);
        }
    return wrong;
}

static int member(void)
{
    int tids[4], number, route, parent = pvm_parent(), wrong;
    for (;;) {
        pvm_recv(parent, 1);
        pvm_upkint(tids, 4, 1);
        pvm_upkint(&number, 1, 1);
        pvm_upkint(&route, 1, 1);
        if (route < 0)
            break;
        wrong = shifts(tids, number, route);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&wrong, 1, 1);
        pvm_send(parent, 3);
    }
    pvm_exit();
    return 0;
}

static void tell(const int *tids, int number, int route)
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint((int *)tids, 4, 1);
    pvm_pkint(&number, 1, 1);
    pvm_pkint(&route, 1, 1);
    pvm_send(tids[number], 1);
}

/* Returns the number of wrong messages of all tasks on this route. */
static int go(const int *tids, int route)
{
    int number, wrong, all;
    for (number = 1; number < 4; number++)
        tell(tids, number, route);
    all = shifts(tids, 0, route);
    for (number = 1; number < 4; number++) {
        pvm_recv(tids[number], 3);
        pvm_upkint(&wrong, 1, 1);
        all += wrong;
    }
    return all;
}

int main(int argc, char **argv)
{
    static const char *names[] = {"bravo", "charlie", "delta"};
    int tids[4], number;
    (void)argv;
    case_begin();
    sent = malloc(LONGEST);
    received = malloc(LONGEST);
    if (argc > 1)
        return member();
    tids[0] = pvm_mytid();
    for (number = 1; number < 4; number++)
        tids[number] = spawn_on(names[number - 1], "member");
    SHOW(go(tids, PvmDontRoute));
    SHOW(go(tids, PvmAllowDirect));
    SHOW(go(tids, PvmRouteDirect));
    for (number = 1; number < 4; number++)
        tell(tids, number, -1);
    pvm_exit();
    return 0;
}
