/* Tasks end while many messages on their direct links are not received yet: the tasks do not wait, and the
 * messages arrive. */
//@ ours-only D3: skip
//@ timeout 90
#include "hosts.h"
#include "numbered.h"

#define BYTES (1 << 20)
#define MESSAGES 48

/* Sends one more message to the parent: before pvm_exit, or from an exit handler. */
static int parent;
static void last_words(void)
{
    send_numbered(parent, 9, MESSAGES, 10);
}

/* Answers until it receives the order to send many messages and to end in one of three ways. */
static int leaver(void)
{
    int tag, i;
    parent = pvm_parent();
    for (;;) {
        pvm_bufinfo(pvm_recv(parent, -1), NULL, &tag, NULL);
        if (tag == 1) {
            pvm_initsend(PvmDataRaw);
            pvm_send(parent, 1);
            continue;
        }
        for (i = 0; i < MESSAGES; i++)
            send_numbered(parent, 9, i, i % 2 ? BYTES : 10);
        if (tag == 2) {
            last_words();
            pvm_exit();
        } else {
            atexit(last_words);
        }
        if (tag == 3)
            exit(0);
        return 0;
    }
}

/* Receives tids, and reports which of these tasks have ended. */
static void watcher(void)
{
    int tid, ended = 0, tag, master = pvm_parent();
    for (;;) {
        pvm_bufinfo(pvm_recv(-1, -1), NULL, &tag, NULL);
        switch (tag) {
        case 20:
            pvm_upkint(&tid, 1, 1);
            pvm_notify(PvmTaskExit, 21, 1, &tid);
            pvm_initsend(PvmDataRaw);
            pvm_send(master, 20);
            break;
        case 21:
            ended++;
            break;
        case 22:
            pvm_initsend(PvmDataRaw);
            pvm_pkint(&ended, 1, 1);
            pvm_send(master, 22);
            break;
        }
    }
}

/* Lets a task end in this way. Prints whether the task ended while this one received nothing, and which
 * messages arrived. */
static void leaves(int how, int eye)
{
    int tid = spawn_on("bravo", "leaver"), i, linked, ended, count = 0, tag, source;
    for (i = 0; i < 2000 && !is_linked(tid); i++) {
        pvm_initsend(PvmDataRaw);
        pvm_send(tid, 1);
        case_receive(tid, 1, PATIENCE);
        usleep(2000);
    }
    linked = is_linked(tid);
    pvm_initsend(PvmDataRaw);
    pvm_pkint(&tid, 1, 1);
    pvm_send(eye, 20);
    case_receive(eye, 20, PATIENCE);
    pvm_notify(PvmTaskExit, 77, 1, &tid);
    pvm_initsend(PvmDataRaw);
    pvm_send(tid, how);
    sleep(4);
    pvm_initsend(PvmDataRaw);
    pvm_send(eye, 22);
    ended = -1;
    if (case_receive(eye, 22, PATIENCE) > 0)
        pvm_upkint(&ended, 1, 1);
    while (case_receive(tid, 9, PATIENCE) > 0 && is_numbered(count)) {
        count++;
        if (count == MESSAGES + 1)
            break;
    }
    tag = case_receive(-1, 77, PATIENCE) > 0;
    source = 0;
    pvm_upkint(&source, 1, 1);
    printf("way %d: linked %d, ended %d, messages %d, end told %d\n", how, linked, ended, count, tag && source == tid);
}

int main(int argc, char **argv)
{
    int eye, how;
    case_begin();
    if (argc > 1)
        return strcmp(argv[1], "leaver") == 0 ? leaver() : (watcher(), 1);
    pvm_mytid();
    eye = spawn_on("charlie", "watcher");
    pvm_setopt(PvmRoute, PvmRouteDirect);
    for (how = 2; how <= 4; how++)
        leaves(how, eye);
    pvm_kill(eye);
    pvm_exit();
    return 0;
}
