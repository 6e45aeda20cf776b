/* A sends FIRST to B, and then spawns a task, which sends SECOND to B: itself, or by a task that it spawns in turn. Or
 * a spawned task sends FIRST, and A, which hears of it, SECOND. */
#include "order.h"

enum { CHILD, GRANDCHILD, PARENT, WAYS };
static const char *ways[] = {"a child", "a child of a child", "the parent of a child"};

/* Spawns a task of this program whose arguments are a way, B, and the owner of the bell, or 0. */
static int spawn(int way, int b, int owner)
{
    char words[3][20], *arguments[] = {words[0], words[1], words[2], NULL};
    sprintf(words[0], "%d", way);
    sprintf(words[1], "%d", b);
    sprintf(words[2], "%d", owner);
    return pvm_spawn(case_path(), arguments, PvmTaskHost, ".", 1, NULL);
}

static int spawned(int way, int b, int owner)
{
    int parent = pvm_parent();
    if (way == GRANDCHILD) {
        spawn(CHILD, b, owner);
    } else if (way == PARENT) {
        case_signal(b, FIRST);
        case_signal(parent, GO);
    } else {
        if (owner)
            order_bell = order_pipe(owner, ORDER_BELL, 0);
        case_signal(b, SECOND);
        order_ring();
    }
    pvm_exit();
    return 0;
}

static void run(int way, int rounds, int b)
{
    int r;
    for (r = 0; r < rounds; r++) {
        if (way != PARENT)
            case_signal(b, FIRST);
        if (spawn(way, b, order_bell >= 0 ? pvm_mytid() : 0) != 1) {
            printf("no child\n");
            return;
        }
        if (way == PARENT) {
            order_await(-1, GO);
            case_signal(b, SECOND);
            order_ring();
        }
        order_await(b, DONE);
    }
    order_print(b, ways[way]);
}

int main(int argc, char **argv)
{
    int b, late, way, rounds = order_rounds(12);
    case_begin();
    if (argc == 4)
        return spawned(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]));
    if (argc > 1) {
        order_role(argv[1]);
        return order_receiver();
    }
    pvm_mytid();
    for (late = 0; late < 2; late++) {
        if (late)
            order_hang_bell();
        order_spawn("receiver", 1, &b);
        for (way = 0; way < WAYS; way++)
            run(way, rounds, b);
        order_end(b);
    }
    order_unpipe(ORDER_BELL);
    pvm_exit();
    return 0;
}
