/* Direct links that nobody asks for, with the usual order: two tasks that are alone on their hosts get one, and lose it when
 * others come. What a task has sent on the link is received before what others send because of it. When the others have
 * gone, there is a link again. */
//@ ours-only PVM makes links only for programs that ask for them: skip
//@ fresh
//@ timeout 90
//@ no-fabric it counts direct links
#include "hosts.h"
#include "numbered.h"

/* Returns whether this task sends to the task on a link. */
#ifndef SENDS_ON_LINK
#define SENDS_ON_LINK(tid) is_linked(tid)
#endif

#define LONG_BYTES (100 << 10)
#define TOLD 5
#define ROUNDS 3

/* Sends a request and receives the answer until there is a link, up to `count` times. */
static int talk(int tid, int count)
{
    int i;
    for (i = 0; i < count && !SENDS_ON_LINK(tid); i++) {
        pvm_initsend(PvmDataRaw);
        pvm_send(tid, 1);
        case_receive(tid, 1, PATIENCE);
        usleep(1000);
    }
    return SENDS_ON_LINK(tid);
}

/* Sends this number to a task. */
static void say(int tid, int tag, int number)
{
    pvm_initsend(PvmDataRaw);
    pvm_pkint(&number, 1, 1);
    pvm_send(tid, tag);
}

/* Sends a message to a task that reads nothing for a while, so that it lies in the socket of the link if there is one. */
static void send_unread(int tid, int size)
{
    say(tid, 7, 0);
    send_numbered(tid, TOLD, TOLD, size);
}

/* Answers the parent. Reports, for each pair of messages of TOLD, whether that of the parent came first. */
static void child(void)
{
    int parent = pvm_parent(), tag, from, first = 0, number;
    for (;;) {
        pvm_bufinfo(pvm_recv(-1, -1), NULL, &tag, &from);
        if (tag == 1) {
            pvm_initsend(PvmDataRaw);
            pvm_send(parent, 1);
        } else if (tag == 2) {
            pvm_upkint(&number, 1, 1);
            say(parent, 3, spawn_on(number ? "bravo" : "alfa", "talker"));
        } else if (tag == 7) {
            usleep(300000);
        } else if (tag == TOLD && from == parent) {
            first = is_numbered(TOLD);
        } else if (tag == TOLD) {
            say(parent, 4, first);
            first = 0;
        }
    }
}

/* Sends a message to the task that it is told, and ends. */
static void talker(void)
{
    int to;
    pvm_recv(-1, 6);
    pvm_upkint(&to, 1, 1);
    say(to, TOLD, 0);
}

int main(int argc, char **argv)
{
    int bravo, charlie, other, i;
    case_begin();
    if (argc > 1) {
        pvm_mytid();
        if (strcmp(argv[1], "child") == 0)
            child();
        else
            talker();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    bravo = spawn_on("bravo", "child");
    puts("-- each host has one task");
    SHOW(talk(bravo, 3000));
    for (i = 0; i < ROUNDS; i++) {
        puts("-- a task that was started after the message");
        send_unread(bravo, LONG_BYTES);
        other = spawn_on("alfa", "talker");
        say(other, 6, bravo);
        SHOW(received_number(bravo, 4));
        SHOW(talk(bravo, 20000));
    }
    puts("-- a task that somebody else has started on the host of the receiver");
    charlie = spawn_on("charlie", "child");
    SHOW(talk(bravo, 20000));
    say(charlie, 2, 1);
    other = received_number(charlie, 3);
    send_unread(bravo, LONG_BYTES);
    say(other, 6, bravo);
    SHOW(received_number(bravo, 4));
    SHOW(talk(bravo, 20000));

    puts("-- a task that somebody else has started on the host of the sender");
    say(charlie, 2, 0);
    other = received_number(charlie, 3);
    send_unread(bravo, LONG_BYTES);
    say(other, 6, bravo);
    SHOW(received_number(bravo, 4));
    SHOW(talk(bravo, 20000));

    puts("-- with company there is no link");
    other = spawn_on("alfa", "talker");
    SHOW(talk(bravo, 500));
    pvm_kill(other);
    SHOW(talk(bravo, 20000));
    pvm_kill(bravo);
    pvm_kill(charlie);
    pvm_exit();
    return 0;
}
