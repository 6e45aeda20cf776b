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

/* Answers the parent's messages until it has sent one with this tag. */
static void answer_until(int last)
{
    int parent = pvm_parent(), tag;
    do {
        pvm_bufinfo(pvm_recv(parent, -1), NULL, &tag, NULL);
        say(parent, PONG, 0);
    } while (tag != last);
}

/* Begins a case of two tasks. Returns the other one, which runs `child` on another host, when both use the fabric. */
static int begin_with(void (*child)(void), int argc)
{
    int tid;
    case_begin();
    pvm_mytid();
    if (argc > 1) {
        child();
        pvm_exit();
        exit(0);
    }
    tid = spawn_on("bravo", "child");
    SHOW(settle(tid));
    return tid;
}

#endif
