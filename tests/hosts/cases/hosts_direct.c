/* Direct routes: which tasks get a link, long messages in both directions before anybody receives, and deaths.
 */
//@ ours-only D3: skip
//@ timeout 60
#include "hosts.h"
#include "numbered.h"
#include <signal.h>

#define BYTES (2 << 20)
#define MESSAGES 40

/* Sends a request and receives the answer, up to `count` times, until there is a link. */
static int talk(int tid, int count)
{
    int i;
    for (i = 0; i < count && !is_linked(tid); i++) {
        pvm_initsend(PvmDataRaw);
        pvm_send(tid, 1);
        case_receive(tid, 1, PATIENCE);
        usleep(2000);
    }
    return is_linked(tid);
}

static int child(void)
{
    int parent = pvm_parent(), tag, i;
    for (;;) {
        pvm_bufinfo(pvm_recv(parent, -1), NULL, &tag, NULL);
        switch (tag) {
        case 1:
            pvm_initsend(PvmDataRaw);
            pvm_send(parent, 1);
            break;
        case 2: /* sends much before it receives */
            for (i = 0; i < 8; i++)
                send_numbered(parent, 3, i, BYTES);
            for (i = 0; i < 8; i++)
                if (pvm_recv(parent, 4) < 0 || !is_numbered(i))
                    return 1;
            send_numbered(parent, 5, 0, 0);
            break;
        case 6: /* dies with many unreceived messages */
            for (i = 0; i < MESSAGES; i++)
                send_numbered(parent, 7, i, i * 997);
            kill(getpid(), SIGKILL);
            break;
        case 8: /* calls pvm_exit while nobody receives */
            for (i = 0; i < MESSAGES; i++)
                send_numbered(parent, 9, i, i % 2 ? 300000 : 10);
            pvm_exit();
            return 0;
        case 10: /* refuses links */
            pvm_setopt(PvmRoute, PvmDontRoute);
            pvm_initsend(PvmDataRaw);
            pvm_send(parent, 1);
            break;
        }
    }
}

/* Returns how many messages with this tag arrived in order before the notify. */
static int heard_before_end(int tid, int tag)
{
    int count = 0, found, source;
    while (case_receive(-1, -1, PATIENCE) > 0) {
        pvm_bufinfo(pvm_getrbuf(), NULL, &found, &source);
        if (found == 77) {
            pvm_upkint(&source, 1, 1);
            return source == tid ? count : -1;
        }
        if (found != tag || source != tid || !is_numbered(count))
            return -2;
        count++;
    }
    return -3;
}

int main(int argc, char **argv)
{
    int refuser, talker, dying, leaving, i, well = 0, heard;
    case_begin();
    if (argc > 1)
        return child();
    pvm_mytid();
    refuser = spawn_on("bravo", "child");
    talker = spawn_on("bravo", "child");
    dying = spawn_on("charlie", "child");
    leaving = spawn_on("delta", "child");
    pvm_initsend(PvmDataRaw);
    pvm_send(refuser, 10);
    case_receive(refuser, 1, PATIENCE);
    SHOW(talk(talker, 20));
    pvm_setopt(PvmRoute, PvmRouteDirect);
    SHOW(talk(refuser, 100));
    SHOW(pvm_notify(PvmRouteAdd, 70, 1, NULL));
    SHOW(talk(talker, 2000));
    SHOW(case_receive(-1, 70, PATIENCE) > 0);
    pvm_upkint(&i, 1, 1);
    SHOW(i == talker);

    pvm_initsend(PvmDataRaw);
    pvm_send(talker, 2);
    for (i = 0; i < 8; i++)
        send_numbered(talker, 4, i, BYTES);
    for (i = 0; i < 8; i++)
        well += case_receive(talker, 3, PATIENCE) > 0 && is_numbered(i);
    SHOW(well);
    SHOW(case_receive(talker, 5, PATIENCE) > 0);

    /* On a busy machine, the talker has given its link up: this task did not read for 20 ms. */
    SHOW(talk(talker, 2000));
    if (fork() == 0)
        _exit(0);
    pvm_initsend(PvmDataRaw);
    pvm_send(talker, 1);
    SHOW(case_receive(talker, 1, PATIENCE) > 0);
    SHOW(is_linked(talker));

    SHOW(pvm_notify(PvmTaskExit, 77, 1, &dying));
    SHOW(talk(dying, 2000));
    pvm_initsend(PvmDataRaw);
    pvm_send(dying, 6);
    heard = heard_before_end(dying, 7);
    SHOW(heard >= 0);
    SHOW(pvm_notify(PvmTaskExit, 77, 1, &leaving));
    SHOW(talk(leaving, 2000));
    pvm_initsend(PvmDataRaw);
    pvm_send(leaving, 8);
    sleep(1);
    SHOW(heard_before_end(leaving, 9));

    SHOW(pvm_notify(PvmRouteDelete, 71, 1, &talker));
    /* Many messages are in flight to this task when it is stopped. */
    pvm_sendsig(talker, SIGSTOP);
    for (i = 0; i < 8; i++)
        send_numbered(talker, 4, i, BYTES);
    pvm_sendsig(talker, SIGKILL);
    for (i = 0; i < 200; i++) {
        send_numbered(talker, 4, i, 1000);
        usleep(1000);
    }
    SHOW(case_receive(-1, 71, PATIENCE) > 0);
    pvm_upkint(&i, 1, 1);
    SHOW(i == talker);
    pvm_kill(refuser);
    pvm_exit();
    return 0;
}
