/* FMP between four hosts: every task sends to every other one, by the default route and on direct links; probes tell
 * near and far senders apart; messages that are too long stay; a task that has ended gets nothing. */
//@ ours-only F6: skip
//@ timeout 60
#include "hosts.h"
#include <fmp.h>

#define WORKERS 8
#define LENGTHS 6

static const size_t lengths[LENGTHS] = {0, 8, 17, 505, 70000, 1000000};
static unsigned char data[1000000], got[1000000];

static int is_near(int tid)
{
    return pvm_tidtohost(tid) == pvm_tidtohost(fmp_self());
}

/* Waits until a probe finds a message with that tag. Returns whether the probe for the sender's side found it. */
static int finds(int tag, fmp_info *info)
{
    int near = 0, far = 0;
    while (near == 0 && far == 0) {
        near = fmp_probe_local(FMP_ANY, tag, info);
        if (near == 0)
            far = fmp_probe_network(FMP_ANY, tag, info);
    }
    return near == 1 ? is_near(info->source) : far == 1 && !is_near(info->source);
}

static int exchange(const int *tids, int first_tag)
{
    int i, k, well = 0;
    fmp_info info, same;
    for (k = 0; k < LENGTHS; k++)
        for (i = 0; i < WORKERS; i++)
            if (tids[i] != fmp_self())
                well += fmp_send(tids[i], first_tag + k, data, lengths[k]) == 0;
    for (k = 0; k < LENGTHS; k++)
        for (i = 1; i < WORKERS; i++) {
            if (!finds(first_tag + k, &info) || info.tag != first_tag + k || info.length != lengths[k])
                return -1;
            /* All earlier messages of this sender have been received, so its next one has this tag. */
            if (info.length > 0 && fmp_receive(info.source, FMP_ANY, got, info.length - 1, &same) != FMP_ETRUNC)
                return -2;
            if (fmp_receive(info.source, FMP_ANY, got, sizeof got, &same) != 0 || same.tag != info.tag)
                return -3;
            if (same.source != info.source || same.length != info.length || memcmp(got, data, same.length) != 0)
                return -4;
        }
    return well;
}

static int worker(void)
{
    int tids[WORKERS], results[3], i, link, partner, me;
    int parent = fmp_parent();
    fmp_receive(parent, 1, tids, sizeof tids, NULL);
    for (me = 0; tids[me] != fmp_self(); me++)
        ;
    results[0] = exchange(tids, 100);
    pvm_setopt(PvmRoute, PvmRouteDirect);
    results[1] = exchange(tids, 200);
    /* With its partner, which is on another host, until there is a link; then long messages on the link. */
    partner = tids[(me + WORKERS / 2) % WORKERS];
    for (i = link = 0; i < 200; i++) {
        fmp_send(partner, 300, &link, sizeof link);
        fmp_receive(partner, 300, &link, sizeof link, NULL);
        link = is_linked(partner);
    }
    results[2] = 0;
    for (i = 0; i < 20; i++) {
        fmp_send(partner, 301, data, sizeof data);
        results[2] += fmp_receive(partner, 301, got, 10, NULL) == FMP_ETRUNC;
        results[2] += fmp_receive(partner, 301, got, sizeof got, NULL) == 0 && memcmp(got, data, sizeof got) == 0;
    }
    fmp_send(parent, 2, results, sizeof results);
    return 0;
}

int main(int argc, char **argv)
{
    int tids[WORKERS], results[3], i, started = 0;
    size_t k;
    case_begin();
    for (k = 0; k < sizeof data; k++)
        data[k] = (unsigned char)(k * 7 + k / 251);
    if (argc > 1)
        return worker();
    started += spawn_on_all("worker", tids);
    started += spawn_on_all("worker", tids + WORKERS / 2);
    printf("started %d\n", started);
    /* The partner of a task is on another host. */
    i = tids[WORKERS / 2], memmove(tids + WORKERS / 2, tids + WORKERS / 2 + 1, (WORKERS / 2 - 1) * sizeof *tids);
    tids[WORKERS - 1] = i;
    for (i = 0; i < WORKERS; i++)
        fmp_send(tids[i], 1, tids, sizeof tids);
    for (i = 0; i < WORKERS; i++) {
        fmp_receive(tids[i], 2, results, sizeof results, NULL);
        printf("worker %d: %d %d %d\n", i, results[0], results[1], results[2]);
    }
    pvm_notify(PvmTaskExit, 9, WORKERS, tids);
    for (i = 0; i < WORKERS; i++)
        case_receive(-1, 9, PATIENCE);
    for (i = started = 0; i < WORKERS; i++)
        started += fmp_send(tids[i], 1, data, sizeof data) == 0;
    printf("sent to the dead: %d\n", started);
    pvm_exit();
    return 0;
}
