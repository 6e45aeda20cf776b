/* Four tasks of `pvm run` that exchange a known number of messages, and stay. Task 0 prints what each has sent and received.
   0 and 1 exchange ROUNDS messages, 2 and 3 send nothing; then 0 waits in a barrier of the group "team" for the others, 1 waits for
   a message of 2 with tag 5, and 2 and 3 sleep in the program. */
#include <pvm3.h>
#include <stdio.h>
#include <unistd.h>

enum { TASKS = 4, ROUNDS = 500, BYTES = 64 };

static void send_to(int tid, int tag, char *bytes)
{
    pvm_initsend(PvmDataRaw);
    pvm_pkbyte(bytes, BYTES, 1);
    pvm_send(tid, tag);
}

int main(void)
{
    char bytes[BYTES] = "";
    int tids[TASKS], instance;

    pvm_mytid();
    instance = pvm_joingroup("team");
    while (pvm_gsize("team") < TASKS)
        usleep(1000);
    pvm_barrier("team", TASKS);
    for (int other = 0; other < TASKS; other++)
        tids[other] = pvm_gettid("team", other);
    for (int round = 0; instance < 2 && round < ROUNDS; round++) {
        if (instance == 0)
            send_to(tids[1], 1, bytes);
        pvm_recv(tids[1 - instance], 1);
        if (instance == 1)
            send_to(tids[0], 1, bytes);
    }
    if (instance == 0) {
        printf("team t%x t%x t%x t%x rounds %d bytes %d\n", tids[0], tids[1], tids[2], tids[3], ROUNDS, BYTES);
        fflush(stdout);
        pvm_barrier("team", TASKS);
    } else if (instance == 1) {
        pvm_recv(tids[2], 5);
    }
    for (;;)
        pause();
}
