/* pvm_parent, pvm_siblings, PvmNoSpawnParent. */
#include "case.h"

static int child(void)
{
    int *tids, count, parent = pvm_parent(), again = pvm_parent(), report;
    report = pvm_recvinfo("parent", 0, PvmMboxWaitForInfo);
    pvm_upkint(&report, 1, 1);
    count = pvm_siblings(&tids);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&parent, 1, 1);
    pvm_pkint(&again, 1, 1);
    pvm_pkint(&count, 1, 1);
    pvm_pkint(tids, count, 1);
    count = pvm_siblings(&tids);
    pvm_pkint(&count, 1, 1);
    pvm_send(report, 1);
    pvm_exit();
    return 0;
}

static void report(int tid, const int *tids)
{
    int parent, again, count, list[8], i, more;
    case_receive(tid, 1, 5);
    pvm_upkint(&parent, 1, 1);
    pvm_upkint(&again, 1, 1);
    pvm_upkint(&count, 1, 1);
    pvm_upkint(list, count, 1);
    pvm_upkint(&more, 1, 1);
    printf("parent %d again %d siblings %d:", parent == pvm_mytid() ? 1 : parent, again == parent, count);
    for (i = 0; i < count; i++)
        printf(" %d", list[i] == tids[i]);
    printf(" then %d\n", more);
}

int main(int argc, char **argv)
{
    char *child_only[] = {"child", NULL};
    int tids[4], me, *siblings, i;
    case_begin();
    if (argc > 1)
        return child();
    me = pvm_mytid();
    SHOW(pvm_parent());
    SHOW(pvm_siblings(&siblings));
    SHOW(siblings[0] == me);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&me, 1, 1);
    pvm_putinfo("parent", pvm_getsbuf(), PvmMboxDefault);
    SHOW(case_spawn("child", 3, tids));
    for (i = 0; i < 3; i++)
        report(tids[i], tids);
    SHOW(case_spawn("child", 1, tids));
    report(tids[0], tids);
    SHOW(pvm_spawn(case_path(), child_only, PvmNoSpawnParent, "", 2, tids));
    for (i = 0; i < 2; i++)
        report(tids[i], tids);
    pvm_exit();
    return 0;
}
