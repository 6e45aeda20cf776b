/* A message comes before its effects, however it is sent, and however long it is: A sends it to B, and then causes C
 * to send to B. */
#include "order.h"

#define LONGEST (1 << 20)

static const char *ways[] = {"packed", "raw", "in place", "psend", "mcast"};

static void send_first(int tid, int way, int size)
{
    static char bytes[LONGEST];
    if (way == 3) {
        pvm_psend(tid, FIRST, bytes, size, PVM_BYTE);
        return;
    }
    pvm_initsend(way == 1 ? PvmDataRaw : way == 2 ? PvmDataInPlace : PvmDataDefault);
    pvm_pkbyte(bytes, size, 1);
    if (way == 4)
        pvm_mcast(&tid, 1, FIRST);
    else
        pvm_send(tid, FIRST);
}

int main(int argc, char **argv)
{
    static const int sizes[] = {8, 500, 4096, 65536, LONGEST};
    int b, c, late, way, size, rounds, r;
    char what[40];
    case_begin();
    if (argc > 1)
        return strcmp(order_role(argv[1]), "relay") ? order_receiver() : order_relay();
    pvm_mytid();
    for (late = 0; late < 2; late++) {
        if (late)
            order_hang_bell();
        order_spawn("receiver", 1, &b);
        order_spawn("relay", 1, &c);
        order_lead(c, b, SECOND);
        for (way = 0; way < 5; way++) {
            for (size = 0; size < 5; size++) {
                rounds = order_rounds(60);
                if (sizes[size] > 4096)
                    rounds = rounds / (sizes[size] / 16384) + 3;
                for (r = 0; r < rounds; r++) {
                    send_first(b, way, sizes[size]);
                    order_send(c, GO, r);
                    order_await(b, DONE);
                }
                sprintf(what, "%s, %d bytes", ways[way], sizes[size]);
                order_print(b, what);
            }
        }
        order_end(b);
        order_send(c, STOP, 0);
    }
    order_unpipe(ORDER_BELL);
    pvm_exit();
    return 0;
}
