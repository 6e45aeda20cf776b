/* D3: messages stay in order while a direct route is being made. */
//@ ours-only D3: skip
#include "case.h"

static int child(void)
{
    int parent = pvm_parent(), i, wrong = 0, value;
    for (i = 0; i < 400; i++) {
        pvm_recv(parent, 1);
        pvm_upkint(&value, 1, 1);
        wrong += value != i;
    }
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&wrong, 1, 1);
    pvm_send(parent, 2);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int tid, i, wrong, turn;
    case_begin();
    if (argc > 1)
        return child();
    pvm_mytid();
    for (turn = 0; turn < 5; turn++) {
        pvm_setopt(PvmRoute, PvmAllowDirect);
        SHOW(case_spawn("child", 1, &tid));
        for (i = 0; i < 400; i++) {
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&i, 1, 1);
            if (i == 100)
                pvm_setopt(PvmRoute, PvmRouteDirect);
            if (i == 200)
                pvm_setopt(PvmRoute, PvmDontRoute);
            pvm_send(tid, 1);
        }
        SHOW(case_receive(tid, 2, 5) > 0);
        pvm_upkint(&wrong, 1, 1);
        SHOW(wrong);
    }
    pvm_exit();
    return 0;
}
