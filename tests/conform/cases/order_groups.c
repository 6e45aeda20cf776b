/* A sends FIRST to B, and then meets C in a call of the group library, or joins a group; C sends SECOND to B. */
#include "order.h"

enum { BARRIER, GATHER, REDUCE, CAST, JOIN, WAYS };
static const char *ways[] = {"pvm_barrier", "pvm_gather", "pvm_reduce", "pvm_bcast", "pvm_joingroup"};

static int rounds_of(int rounds, int way)
{
    return way < CAST ? rounds : rounds / 2 + 1;
}

static char *joined(int round)
{
    static char name[40];
    sprintf(name, "joined %d", round);
    return name;
}

/* A's or C's part of a round. C is the root. */
static void meet(int way, int round, int root, int is_root)
{
    int one = 1, all[2];
    if (way == BARRIER)
        pvm_barrier("pair", 2);
    if (way == GATHER)
        pvm_gather(all, &one, 1, PVM_INT, GO, "pair", root);
    if (way == REDUCE)
        pvm_reduce(PvmSum, &one, 1, PVM_INT, GO, "pair", root);
    if (way == CAST && is_root) {
        pvm_recv(-1, GO);
    } else if (way == CAST) {
        pvm_initsend(PvmDataDefault);
        pvm_bcast("pair", GO);
    }
    if (way == JOIN && is_root)
        while (pvm_gettid(joined(round), 0) < 0)
            ;
    else if (way == JOIN)
        pvm_joingroup(joined(round));
}

static int member(void)
{
    int tids[2], rounds, way, r, root;
    order_started(2, tids, &rounds);
    root = pvm_joingroup("pair");
    order_send(pvm_parent(), START, root);
    pvm_setopt(PvmAutoErr, 0); /* there may be no group */
    for (way = 0; way < WAYS; way++) {
        for (r = 0; r < rounds_of(rounds, way); r++) {
            meet(way, r, root, 1);
            case_signal(tids[0], SECOND);
            order_ring();
        }
    }
    pvm_lvgroup("pair");
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int tids[2], rounds = order_rounds(60), late, way, r, root;
    case_begin();
    if (argc > 1)
        return strcmp(order_role(argv[1]), "member") ? order_receiver() : member();
    pvm_mytid();
    pvm_joingroup("pair");
    for (late = 0; late < 2; late++) {
        if (late)
            order_hang_bell();
        order_spawn("receiver", 1, &tids[0]);
        order_spawn("member", 1, &tids[1]);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(tids, 2, 1);
        pvm_pkint(&rounds, 1, 1);
        pvm_send(tids[1], START);
        order_await(tids[1], START);
        root = order_value();
        for (way = 0; way < WAYS; way++) {
            for (r = 0; r < rounds_of(rounds, way); r++) {
                order_send(tids[0], FIRST, r);
                meet(way, r, root, 0);
                order_await(tids[0], DONE);
                if (way == JOIN)
                    pvm_lvgroup(joined(r));
            }
            order_print(tids[0], ways[way]);
        }
        order_end(tids[0]);
        case_gone(tids[1]);
    }
    order_unpipe(ORDER_BELL);
    pvm_lvgroup("pair");
    pvm_exit();
    return 0;
}
