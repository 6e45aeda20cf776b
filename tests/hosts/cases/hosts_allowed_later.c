/* A task that has refused a direct link gets one soon after it allows links. */
//@ ours-only D3: skip
//@ timeout 60
//@ no-fabric it counts direct links
#include "hosts.h"

/* Answers each message. Refuses links until it receives tag 2. */
static int refuser(void)
{
    int tag, parent = pvm_parent();
    pvm_setopt(PvmRoute, PvmDontRoute);
    for (;;) {
        pvm_bufinfo(pvm_recv(parent, -1), NULL, &tag, NULL);
        if (tag == 2)
            pvm_setopt(PvmRoute, PvmAllowDirect);
        pvm_initsend(PvmDataRaw);
        pvm_send(parent, 1);
    }
}

static void exchange(int tid, int tag)
{
    pvm_initsend(PvmDataRaw);
    pvm_send(tid, tag);
    case_receive(tid, 1, PATIENCE);
    usleep(2000);
}

int main(int argc, char **argv)
{
    int tid, i;
    (void)argv;
    case_begin();
    if (argc > 1)
        return refuser();
    pvm_mytid();
    pvm_setopt(PvmRoute, PvmRouteDirect);
    tid = spawn_on("bravo", "refuser");
    for (i = 0; i < 100; i++)
        exchange(tid, 1);
    SHOW(is_linked(tid));
    exchange(tid, 2);
    for (i = 0; i < 5000 && !is_linked(tid); i++)
        exchange(tid, 1);
    SHOW(is_linked(tid));
    pvm_kill(tid);
    pvm_exit();
    return 0;
}
