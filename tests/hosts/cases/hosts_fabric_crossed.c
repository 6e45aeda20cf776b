/* Two tasks send each other long messages at the same time, and only one of their hosts has a fabric: one asks for a link
 * on the fabric while the other asks for a direct link. They get the direct link at once. */
//@ ours-only D3: skip
//@ hostfile * fabric=tcp
//@ hostfile &bravo fabric=off
//@ timeout 90
#define _GNU_SOURCE
#include "hosts.h"
#include <unistd.h>

#define PvmFabricTasks 1006
#define LONG_BYTES (1 << 20)
#define ROUNDS 3
#define PAIRS 8

static char body[LONG_BYTES];

/* Sends and receives in each round: first long messages, which are worth a link, then short ones, for which no send waits.
 * Returns whether all has come. */
static int exchange(int peer)
{
    int i, well = 0;
    for (i = 0; i < ROUNDS; i++) {
        pvm_initsend(PvmDataRaw);
        pvm_pkbyte(body, i == 0 ? LONG_BYTES : 1, 1);
        pvm_send(peer, 5);
        well += case_receive(peer, 5, PATIENCE) > 0;
    }
    return well == ROUNDS;
}

/* The word of the parent begins the exchange, so that both tasks begin at about the same time. */
static int child(void)
{
    pvm_initsend(PvmDataRaw);
    pvm_send(pvm_parent(), 1);
    pvm_recv(pvm_parent(), 1);
    exchange(pvm_parent());
    pvm_recv(pvm_parent(), 2);
    pvm_exit();
    return 0;
}

/* Exchanges messages with a new task on that host. Returns its tid, or 0. */
static int talk(const char *host)
{
    int tid = spawn_on(host, "child"), well = case_receive(tid, 1, PATIENCE) > 0;
    pvm_initsend(PvmDataRaw);
    pvm_send(tid, 1);
    return well && exchange(tid) ? tid : 0;
}

/* Returns whether there is a link soon: one that is refused is asked for again by a later send only. */
static int is_soon_linked(int tid)
{
    int i;
    for (i = 0; i < 300 && !is_linked(tid); i++) {
        usleep(10000);
        pvm_nrecv(tid, 6);
    }
    return i < 300;
}

int main(int argc, char **argv)
{
    int tid, i, linked = 0;
    (void)argv;
    case_begin();
    pvm_mytid();
    if (argc > 1)
        return child();
    /* Opens the fabric. */
    tid = talk("charlie");
    SHOW(tid > 0);
    for (i = 0; i < 300 && pvm_getopt(PvmFabricTasks) == 0; i++) {
        usleep(10000);
        pvm_nrecv(tid, 6);
    }
    SHOW(pvm_getopt(PvmFabricTasks));
    pvm_initsend(PvmDataRaw);
    pvm_send(tid, 2);
    for (i = 0; i < PAIRS; i++) {
        tid = talk("bravo");
        linked += is_soon_linked(tid);
        pvm_initsend(PvmDataRaw);
        pvm_send(tid, 2);
    }
    printf("%d pairs, %d with a link\n", PAIRS, linked);
    pvm_exit();
    return 0;
}
