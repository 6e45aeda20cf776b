/* Collective calls leave the user's buffers alone (D8). */
#include "group.h"
//@ may-differ D8: send buffer after pvm_scatter: another => send buffer after pvm_scatter: the same
//@ may-differ D8: libpvm [t#1]: pvm_setsbuf(): No such buffer => (nothing)
//@ may-differ D8: libpvm [t#1]: pvm_send(): No current buffer => (nothing)
//@ may-differ D8: sent: 0 => sent: 42

int main(int argc, char **argv)
{
    int tid, send, receive, value = 42, data[4] = {1, 2, 3, 4}, result[4];
    case_begin();
    if (argc > 1)
        return group_child();
    pvm_mytid();
    group_spawn(1, &tid);
    SHOW(pvm_joingroup("g"));
    SHOW(group_do(tid, JOIN, "g", 0, 0));
    case_signal(pvm_mytid(), 5);
    pvm_recv(-1, 5);
    receive = pvm_getrbuf();
    send = pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);

    group_order(tid, BARRIER, "g", 2, 0);
    SHOW(pvm_barrier("g", 2));
    printf("send buffer after pvm_barrier: %s\n", pvm_getsbuf() == send ? "the same" : "another");
    printf("receive buffer after pvm_barrier: %s\n", pvm_getrbuf() == receive ? "the same" : "another");
    group_order(tid, SUM, "g", 1, 0);
    SHOW(pvm_reduce(PvmSum, data, 1, PVM_INT, 7, "g", 0));
    printf("send buffer after pvm_reduce: %s\n", pvm_getsbuf() == send ? "the same" : "another");
    printf("receive buffer after pvm_reduce: %s\n", pvm_getrbuf() == receive ? "the same" : "another");
    group_order(tid, GATHER, "g", 1, 0);
    SHOW(pvm_gather(result, data, 1, PVM_INT, 8, "g", 0));
    printf("send buffer after pvm_gather: %s\n", pvm_getsbuf() == send ? "the same" : "another");
    printf("receive buffer after pvm_gather: %s\n", pvm_getrbuf() == receive ? "the same" : "another");
    group_order(tid, SCATTER, "g", 1, 0);
    SHOW(pvm_scatter(result, data, 1, PVM_INT, 9, "g", 0));
    printf("send buffer after pvm_scatter: %s\n", pvm_getsbuf() == send ? "the same" : "another");
    printf("receive buffer after pvm_scatter: %s\n", pvm_getrbuf() == receive ? "the same" : "another");
    pvm_setsbuf(send);
    pvm_send(pvm_mytid(), 6);
    value = 0;
    if (case_own(6) > 0)
        pvm_upkint(&value, 1, 1);
    printf("sent: %d\n", value);
    for (value = 0; value < 4; value++)
        SHOW(group_answer(tid));
    group_end(1, &tid);
    pvm_exit();
    return 0;
}
