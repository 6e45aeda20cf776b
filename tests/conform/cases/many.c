/* Many messages to a task that does not receive for a while; none is lost or out of order. */
#include "case.h"

enum { MESSAGES = 20000 };

int main(int argc, char **argv)
{
    int tid, i, wrong = 0, value;
    case_begin();
    if (argc > 1) {
        int parent = pvm_parent();
        pvm_recv(parent, 2);
        for (i = 0; i < MESSAGES; i++) {
            pvm_recv(parent, 1);
            pvm_upkint(&value, 1, 1);
            wrong += value != i;
        }
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&wrong, 1, 1);
        pvm_send(parent, 3);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(case_spawn("child", 1, &tid));
    for (i = 0; i < MESSAGES; i++) {
        pvm_initsend(PvmDataRaw);
        pvm_pkint(&i, 1, 1);
        pvm_send(tid, 1);
    }
    case_signal(tid, 2);
    SHOW(case_receive(tid, 3, 15) > 0);
    pvm_upkint(&wrong, 1, 1);
    SHOW(wrong);
    pvm_exit();
    return 0;
}
