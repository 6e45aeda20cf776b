/* A sends FIRST to B, and then changes a mailbox; C sees it, and sends SECOND to B. */
#include "order.h"

enum { WAITS, POLLS, GONE, WAYS };
static const char *ways[] = {"C waits for an entry", "C polls for an entry", "C polls until an entry is deleted"};

static int watcher(void)
{
    int tids[2], rounds, way, r;
    order_started(2, tids, &rounds);
    pvm_setopt(PvmAutoErr, 0); /* there may be no entry */
    for (way = 0; way < WAYS; way++) {
        for (r = 0; r < rounds; r++) {
            char *name = order_name(way, r);
            if (way == GONE) {
                pvm_recvinfo(name, 0, PvmMboxWaitForInfo);
                case_signal(pvm_parent(), GO);
                while (pvm_recvinfo(name, 0, PvmMboxDefault) > 0)
                    ;
            } else if (way == POLLS) {
                while (pvm_recvinfo(name, 0, PvmMboxDefault) <= 0)
                    ;
            } else {
                pvm_recvinfo(name, 0, PvmMboxWaitForInfo);
            }
            case_signal(tids[0], SECOND);
            order_ring();
        }
    }
    pvm_exit();
    return 0;
}

static void run(int way, int rounds, int b, int c)
{
    int r;
    for (r = 0; r < rounds; r++) {
        char *name = order_name(way, r);
        if (way == GONE) {
            order_put(name);
            order_await(c, GO);
        }
        order_send(b, FIRST, r);
        if (way == GONE)
            pvm_delinfo(name, 0, PvmMboxDefault);
        else
            order_put(name);
        order_await(b, DONE);
        if (way != GONE)
            pvm_delinfo(name, 0, PvmMboxDefault);
    }
    order_print(b, ways[way]);
}

int main(int argc, char **argv)
{
    int tids[2], rounds = order_rounds(150), way, late;
    case_begin();
    if (argc > 1)
        return strcmp(order_role(argv[1]), "watcher") ? order_receiver() : watcher();
    pvm_mytid();
    for (late = 0; late < 2; late++) {
        if (late)
            order_hang_bell();
        order_spawn("receiver", 1, &tids[0]);
        order_spawn("watcher", 1, &tids[1]);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(tids, 2, 1);
        pvm_pkint(&rounds, 1, 1);
        pvm_send(tids[1], START);
        for (way = 0; way < WAYS; way++)
            run(way, rounds, tids[0], tids[1]);
        order_end(tids[0]);
    }
    order_unpipe(ORDER_BELL);
    pvm_exit();
    return 0;
}
