/* A parent and two children that exchange messages by all kinds of calls; the parent kills both while they
 * wait. */
#include <pvm3.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 50

static int taken;

static int take(int mid)
{
    (void)mid;
    taken++;
    return 0;
}

static void child(int parent)
{
    int turn, value = 0, source, tag, length;
    for (turn = 0; turn < ROUNDS; turn++) {
        pvm_recv(parent, 1);
        pvm_upkint(&value, 1, 1);
        pvm_psend(parent, 2, &value, 1, PVM_INT);
    }
    pvm_precv(parent, 3, &value, 1, PVM_INT, &source, &tag, &length);
    pvm_send(parent, 4);
    pvm_recv(parent, 99); /* never arrives */
}

int main(int argc, char **argv)
{
    int tids[2], turn, one, value = 7;
    char *arguments[] = {"child", 0};
    struct timeval limit = {0, 1000};
    pvm_mytid();
    if (argc > 1) {
        pvm_initsend(PvmDataDefault);
        child(pvm_parent());
        return 0;
    }
    if (pvm_spawn(argv[0], arguments, PvmTaskDefault, "", 2, tids) != 2)
        return 1;
    pvm_addmhf(-1, 4, 0, take);
    for (turn = 0; turn < ROUNDS; turn++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&value, 1, 1);
        pvm_mcast(tids, 2, 1);
        for (one = 0; one < 2; one++)
            pvm_recv(-1, 2);
    }
    pvm_initsend(PvmDataTrace);
    pvm_pkint(&value, 1, 1);
    pvm_send(-1111, -2222);
    pvm_notify(PvmTaskExit, 5, 2, tids);
    for (one = 0; one < 2; one++)
        pvm_psend(tids[one], 3, &value, 1, PVM_INT);
    while (taken < 2)
        pvm_trecv(-1, 98, &limit);
    usleep(20000);
    pvm_sendsig(tids[0], SIGKILL);
    pvm_kill(tids[1]);
    for (one = 0; one < 2; one++)
        pvm_recv(-1, 5);
    pvm_exit();
    return 0;
}
