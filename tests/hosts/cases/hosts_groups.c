/* Groups with members on several hosts: instances, barriers, broadcast, gather, scatter, reduce, and the death
 * of a member. */
//@ timeout 60
#include "hosts.h"

#define MEMBERS 8
#define GROUP "everywhere"

static void work(int first)
{
    int me, i, k, sum[3], all[MEMBERS], part = -1, results[8], n = 0, value, from_all[MEMBERS];
    double product[2];
    me = pvm_joingroup(GROUP);
    results[n++] = pvm_barrier(GROUP, MEMBERS);
    results[n++] = pvm_gsize(GROUP) == MEMBERS;
    value = 1;
    for (i = 0; i < MEMBERS; i++) {
        int tid = pvm_gettid(GROUP, i);
        if (tid <= 0 || pvm_getinst(GROUP, tid) != i)
            value = 0;
    }
    results[n++] = value;
    /* Each member broadcasts once. */
    value = 0;
    for (i = 0; i < MEMBERS; i++) {
        pvm_barrier(GROUP, MEMBERS);
        if (i == me) {
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&me, 1, 1);
            pvm_bcast(GROUP, 70 + i);
        } else if (case_receive(-1, 70 + i, PATIENCE) > 0) {
            pvm_upkint(&k, 1, 1);
            value += k;
        }
    }
    results[n++] = value + me;
    for (i = 0; i < MEMBERS; i++)
        all[i] = from_all[i] = -1;
    for (i = 0; i < MEMBERS; i++)
        all[i] = 100 + i;
    results[n++] = pvm_scatter(&part, all, 1, PVM_INT, 80, GROUP, 2);
    part += me;
    results[n++] = pvm_gather(from_all, &part, 1, PVM_INT, 81, GROUP, 3);
    if (me == 3)
        for (value = i = 0; i < MEMBERS; i++)
            value += from_all[i] == 100 + 2 * i;
    else
        value = MEMBERS;
    results[n++] = value;
    sum[0] = me;
    sum[1] = 1;
    sum[2] = -me;
    pvm_reduce(PvmSum, sum, 3, PVM_INT, 82, GROUP, 1);
    product[0] = me;
    product[1] = -me;
    pvm_reduce(PvmMax, product, 2, PVM_DOUBLE, 83, GROUP, 1);
    results[n++] = me != 1 ? 1 : sum[0] == 28 && sum[1] == 8 && sum[2] == -28 && product[0] == 7 && product[1] == 0;
    pvm_barrier(GROUP, MEMBERS);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&me, 1, 1);
    pvm_pkint(&n, 1, 1);
    pvm_pkint(results, n, 1);
    pvm_send(first, 90);
    pvm_recv(first, 91);
    pvm_lvgroup(GROUP);
}

int main(int argc, char **argv)
{
    int tids[MEMBERS], i, k, me, n, results[8], seen[MEMBERS] = {0};
    char line[MEMBERS][200];
    case_begin();
    if (argc > 1) {
        work(pvm_parent());
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(spawn_on_all("child", tids));
    SHOW(spawn_on_all("child", tids + 4));
    for (i = 0; i < MEMBERS; i++) {
        if (case_receive(-1, 90, 2 * PATIENCE) <= 0) {
            printf("nothing from one\n");
            continue;
        }
        pvm_upkint(&me, 1, 1);
        pvm_upkint(&n, 1, 1);
        pvm_upkint(results, n, 1);
        if (me < 0 || me >= MEMBERS || seen[me]++)
            printf("wrong number %d\n", me);
        else
            for (line[me][0] = k = 0; k < n; k++)
                sprintf(line[me] + strlen(line[me]), " %d", results[k]);
    }
    for (i = 0; i < MEMBERS; i++)
        printf("member %d:%s\n", i, seen[i] ? line[i] : " nothing");
    SHOW(pvm_gsize(GROUP));
    i = pvm_gettid(GROUP, 5);
    pvm_kill(i);
    case_gone(i);
    usleep(300000);
    SHOW(pvm_gsize(GROUP));
    SHOW(pvm_gettid(GROUP, 5));
    for (i = 0; i < MEMBERS; i++)
        case_signal(tids[i], 91);
    for (i = 0; i < MEMBERS; i++)
        case_gone(tids[i]);
    usleep(300000);
    SHOW(pvm_gsize(GROUP));
    pvm_exit();
    return 0;
}
