/* Two tasks on hosts that share a fabric. */
#ifndef FABRIC_H
#define FABRIC_H

#include "hosts.h"
#include <time.h>

#define PvmFabricTasks 1006

/* The tags of settle(), and of its answers. */
enum { PING = 1, PONG };

static void say(int peer, int tag, int number)
{
    pvm_initsend(PvmDataRaw);
    pvm_pkint(&number, 1, 1);
    pvm_send(peer, tag);
}

/* Sends messages, each of which the peer answers, until the two tasks use the fabric. Returns how many peers the fabric
 * reaches. */
static int settle(int peer)
{
    time_t end = time(NULL) + 2 * (int)PATIENCE;
    while (pvm_getopt(PvmFabricTasks) < 1 && time(NULL) < end) {
        say(peer, PING, 0);
        case_receive(peer, PONG, 1);
    }
    return pvm_getopt(PvmFabricTasks);
}

#endif
