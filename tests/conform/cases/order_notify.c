/* A sends FIRST to B and ends; C is told of the end by pvm_notify, and sends SECOND to B. */
#include "order.h"
#include <signal.h>

enum { LEAVES, RETURNS, DIES, WAYS };
static const char *ways[] = {"pvm_exit", "no pvm_exit", "SIGKILL"};

/* A: it is told of B, and how to end. */
static int sender(void)
{
    static char bytes[65536];
    int b, way, length;
    pvm_recv(-1, START);
    b = order_value();
    way = order_value();
    length = order_value();
    pvm_initsend(PvmDataRaw);
    pvm_pkbyte(bytes, length, 1);
    pvm_send(b, FIRST);
    if (way == LEAVES)
        pvm_exit();
    else
        order_settle(); /* PVM 3.4.6 may lose what it has not yet read when a task dies */
    if (way == DIES)
        kill(getpid(), SIGKILL);
    _exit(0);
}

/* C: for each sender of which it is told, it asks for the notification, and starts the sender. */
static int watcher(void)
{
    int words[4], tag;
    while ((tag = order_next()) != STOP) {
        pvm_upkint(words, 4, 1);
        pvm_notify(PvmTaskExit, GO, 1, &words[3]);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(words, 3, 1);
        pvm_send(words[3], START);
        pvm_recv(-1, GO);
        case_signal(words[0], SECOND);
        order_ring();
    }
    pvm_exit();
    return 0;
}

static void run(int way, int rounds, int b, int c)
{
    int words[4] = {b, way, 0, 0}, r;
    for (r = 0; r < rounds; r++) {
        words[2] = r % 3 == 2 ? 65536 : 8;
        if (order_spawn("sender", 1, &words[3]) != 1) {
            printf("no sender: %d\n", words[3]);
            return;
        }
        pvm_initsend(PvmDataDefault);
        pvm_pkint(words, 4, 1);
        pvm_send(c, START);
        order_await(b, DONE);
    }
    order_print(b, ways[way]);
}

int main(int argc, char **argv)
{
    int b, c, rounds = order_rounds(12), way, late;
    case_begin();
    if (argc > 1) {
        char *role = order_role(argv[1]);
        if (!strcmp(role, "sender"))
            return sender();
        return strcmp(role, "watcher") ? order_receiver() : watcher();
    }
    pvm_mytid();
    for (late = 0; late < 2; late++) {
        if (late)
            order_hang_bell();
        order_spawn("receiver", 1, &b);
        order_spawn("watcher", 1, &c);
        for (way = 0; way < WAYS; way++)
            run(way, rounds, b, c);
        order_end(b);
        order_send(c, STOP, 0);
    }
    order_unpipe(ORDER_BELL);
    pvm_exit();
    return 0;
}
