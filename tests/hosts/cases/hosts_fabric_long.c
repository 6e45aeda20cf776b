/* Messages that are long from the first one on take the fabric, too: a direct link, which such messages are worth sooner
 * than short ones, would keep them from it. */
//@ ours-only D3: skip
//@ daemon-env PVM_FABRIC=tcp
//@ timeout 60
#include "hosts.h"

#define PvmFabricTasks 1006
#define LONG_BYTES (1 << 20)
#define ROUNDS 20
#define TAG 5

static char body[LONG_BYTES];

/* Sends the long message. */
static void send_long(int tid)
{
    pvm_initsend(PvmDataRaw);
    pvm_pkbyte(body, LONG_BYTES, 1);
    pvm_send(tid, TAG);
}

int main(int argc, char **argv)
{
    int tid, i, arrived = 0, mine;
    (void)argv;
    case_begin();
    pvm_mytid();
    if (argc > 1) {
        for (i = 0; i < ROUNDS; i++) {
            pvm_recv(pvm_parent(), TAG);
            send_long(pvm_parent());
        }
        pvm_recv(pvm_parent(), TAG);
        mine = pvm_getopt(PvmFabricTasks);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&mine, 1, 1);
        pvm_send(pvm_parent(), TAG);
        pvm_exit();
        return 0;
    }
    tid = spawn_on("bravo", "child");
    for (i = 0; i < ROUNDS; i++) {
        send_long(tid);
        arrived += case_receive(tid, TAG, PATIENCE) > 0;
    }
    printf("%d messages came back, tasks by the fabric: %d\n", arrived, pvm_getopt(PvmFabricTasks));
    send_long(tid);
    SHOW(case_receive(tid, TAG, PATIENCE) > 0);
    pvm_upkint(&mine, 1, 1);
    printf("at the other end: %d\n", mine);
    pvm_exit();
    return 0;
}
