/* A sends FIRST to B, and then a message to the first task of a chain, whose last task sends SECOND to B. */
#include "order.h"

#define LONGEST 8

int main(int argc, char **argv)
{
    int b, chain[LONGEST], late, length, i, r, rounds = order_rounds(150);
    char what[40];
    case_begin();
    if (argc > 1)
        return strcmp(order_role(argv[1]), "relay") ? order_receiver() : order_relay();
    pvm_mytid();
    for (late = 0; late < 2; late++) {
        if (late)
            order_hang_bell();
        order_spawn("receiver", 1, &b);
        order_spawn("relay", LONGEST, chain);
        for (length = 1; length <= LONGEST; length *= 2) {
            for (i = 0; i < length - 1; i++)
                order_lead(chain[i], chain[i + 1], GO);
            order_lead(chain[i], b, SECOND);
            for (r = 0; r < rounds; r++) {
                order_send(b, FIRST, r);
                order_send(chain[0], GO, r);
                order_await(b, DONE);
            }
            sprintf(what, "a chain of %d", length);
            order_print(b, what);
        }
        order_end(b);
        order_tell(LONGEST, chain, STOP, 0);
    }
    order_unpipe(ORDER_BELL);
    pvm_exit();
    return 0;
}
