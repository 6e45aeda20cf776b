/* Cause before effect where A and B, or B and C, are on one host, and the other task may be on another host. */
#include "order.h"

/* Spawns this program as `role` on another host; on this one if it is the only one. */
static void spawn_there(char *role, int *tid)
{
    char *arguments[] = {role, NULL};
    pvm_spawn(case_path(), arguments, PvmTaskHost, order_elsewhere(), 1, tid);
}

int main(int argc, char **argv)
{
    static char bytes[65536];
    int b, c, place, r, rounds = order_rounds(300);
    case_begin();
    if (argc > 1)
        return strcmp(argv[1], "relay") ? order_receiver() : order_relay();
    pvm_mytid();
    for (place = 0; place < 2; place++) {
        if (place == 0)
            case_spawn_here("receiver", 1, &b);
        else
            spawn_there("receiver", &b);
        spawn_there("relay", &c);
        order_lead(c, b, SECOND);
        for (r = 0; r < rounds; r++) {
            pvm_initsend(PvmDataRaw);
            pvm_pkbyte(bytes, r % 4 == 0 ? (int)sizeof bytes : 8, 1);
            pvm_send(b, FIRST);
            order_send(c, GO, r);
            order_await(b, DONE);
        }
        order_print(b, place == 0 ? "B is with A" : "B is with C");
        order_end(b);
        order_send(c, STOP, 0);
    }
    pvm_exit();
    return 0;
}
