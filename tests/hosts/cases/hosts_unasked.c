/* Direct links that nobody asks for: who gets one, order while multicasts and bursts leave it, and a killed sender whose
 * receiver does not read. */
//@ ours-only PVM makes links only for programs that ask for them: skip
//@ daemon-env HPVM_ORDER=pairs
//@ timeout 90
//@ no-fabric it counts direct links
#include "hosts.h"
#include "numbered.h"
#include <signal.h>

#define BURST 20000
#define ROUNDS 120
#define LONG_BYTES (300 << 10)
#define LAST 60
#define LAST_BYTES (1 << 20)

/* Sends a request and receives the answer, up to `count` times, until there is a link. */
static int talk(int tid, int count)
{
    int i;
    for (i = 0; i < count && !is_linked(tid); i++) {
        pvm_initsend(PvmDataRaw);
        pvm_send(tid, 1);
        case_receive(tid, 1, PATIENCE);
        usleep(200);
    }
    return is_linked(tid);
}

static void answer(int tag, int number)
{
    pvm_initsend(PvmDataRaw);
    pvm_pkint(&number, 1, 1);
    pvm_send(pvm_parent(), tag);
}

static int child(void)
{
    int parent = pvm_parent(), tag, i, well;
    for (;;) {
        pvm_bufinfo(pvm_recv(parent, -1), NULL, &tag, NULL);
        switch (tag) {
        case 1:
            answer(1, 0);
            break;
        case 2:
            pvm_setopt(PvmRoute, PvmDontRoute);
            answer(1, 0);
            break;
        case 3: /* a burst follows */
            for (well = i = 0; i < BURST; i++)
                well += pvm_recv(parent, -1) > 0 && is_numbered(i);
            answer(3, well);
            break;
        case 4: /* messages to this task alone and to all, of which it answers some */
            for (well = i = 0; i < ROUNDS; i++) {
                well += pvm_recv(parent, -1) > 0 && is_numbered(i);
                if (i % 4 == 1)
                    answer(4, i);
            }
            answer(5, well);
            break;
        case 6: /* sends while the parent does not read, and dies */
            for (i = 0; i < LAST; i++)
                send_numbered(parent, 7, i, i % 3 ? 100 : LAST_BYTES);
            kill(getpid(), SIGKILL);
            return 1;
        }
    }
}

/* Sends a message with this number and length to all. */
static void multicast(int *tids, int count, int number, int bytes)
{
    pack_numbered(number, bytes);
    pvm_mcast(tids, count, 5);
}

int main(int argc, char **argv)
{
    int tids[4], i, k, heard, tag, number;
    case_begin();
    if (argc > 1)
        return child();
    pvm_mytid();
    SHOW(spawn_on_all("child", tids));
    SHOW(pvm_getopt(PvmRoute));
    puts("-- few messages are not worth a link, many are");
    SHOW(talk(tids[1], 20));
    SHOW(talk(tids[1], 2000));
    SHOW(talk(tids[2], 2000));
    SHOW(talk(tids[3], 2000));
    SHOW(is_linked(tids[1]));

    puts("-- messages to one and to all keep their order");
    pvm_initsend(PvmDataRaw);
    pvm_mcast(tids + 1, 3, 4);
    for (i = 0; i < ROUNDS; i++) {
        if (i % 30 < 10)
            multicast(tids + 1, 3, i, i % 2 ? 10 : LONG_BYTES);
        else
            for (k = 1; k < 4; k++)
                send_numbered(tids[k], 5, i, i % 7 ? 10 : LONG_BYTES);
        for (k = 1; k < 4 && i % 4 == 1; k++)
            if (received_number(tids[k], 4) != i)
                printf("no answer to %d\n", i);
    }
    for (k = 1; k < 4; k++)
        SHOW(received_number(tids[k], 5));

    puts("-- a long burst takes the default route");
    SHOW(talk(tids[1], 2000));
    pvm_initsend(PvmDataRaw);
    pvm_send(tids[1], 3);
    for (i = 0; i < BURST; i++)
        send_numbered(tids[1], 5, i, 10);
    SHOW(is_linked(tids[1]));
    SHOW(received_number(tids[1], 3));
    SHOW(talk(tids[1], 2000));

    puts("-- a task that forbids links gets none");
    heard = spawn_on("charlie", "child");
    pvm_initsend(PvmDataRaw);
    pvm_send(heard, 2);
    case_receive(heard, 1, PATIENCE);
    SHOW(talk(heard, 100));
    pvm_kill(heard);

    puts("-- what a killed task had sent arrives, although nobody read it");
    SHOW(talk(tids[3], 2000));
    pvm_notify(PvmTaskExit, 77, 1, &tids[3]);
    pvm_initsend(PvmDataRaw);
    pvm_send(tids[3], 6);
    sleep(3);
    for (heard = 0; heard < LAST && case_receive(tids[3], 7, 5.0) > 0 && is_numbered(heard); heard++)
        ;
    SHOW(heard);
    number = case_receive(-1, 77, PATIENCE) > 0;
    pvm_upkint(&tag, 1, 1);
    SHOW(number && tag == tids[3]);
    for (k = 0; k < 3; k++)
        pvm_kill(tids[k]);
    pvm_exit();
    return 0;
}
