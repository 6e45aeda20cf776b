/* standby: adds the squares of 1 to 100. One task leads, another one on another host waits to take its place. */
#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 100, GONE = 1 };
static int step, sum;                               /* the state */
static char *arguments[] = {"standby", NULL};

static void put_state(void)                         /* The entry outlives this task. */
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&step, 1, 1);
    pvm_pkint(&sum, 1, 1);
    if (pvm_putinfo("standby", pvm_getsbuf(), PvmMboxPersistent | PvmMboxOverWritable) < 0)
        exit(1);                                    /* cut off from the machine: another task may lead */
}

static void stand_by(int leader)                    /* Waits for the end of the leader, and takes its state. */
{
    int buffer;
    pvm_notify(PvmTaskExit, GONE, 1, &leader);
    if (pvm_recv(-1, GONE) < 0)
        exit(1);
    buffer = pvm_recvinfo("standby", 0, PvmMboxDefault);
    if (buffer < 0) {                               /* The leader had finished. */
        pvm_exit();
        exit(0);
    }
    pvm_setrbuf(buffer);
    pvm_upkint(&step, 1, 1);
    pvm_upkint(&sum, 1, 1);
    fprintf(stderr, "standby: goes on from step %d\n", step);
}

static int start_standby(void)                      /* Returns whether there is one. */
{
    int tid;
    return (pvm_spawn("standby", arguments, PvmTaskHost | PvmHostCompl, ".", 1, &tid) == 1
            || pvm_spawn("standby", arguments, PvmTaskDefault, "", 1, &tid) == 1)
        && pvm_notify(PvmTaskExit, GONE, 1, &tid) == 0;
}

int main(int argc, char **argv)
{
    int leader = pvm_parent(), has_standby = 0;
    (void)argv;
    if (argc > 1)
        stand_by(leader);
    for (put_state(); step < STEPS; put_state()) {
        if (!has_standby || pvm_nrecv(-1, GONE) > 0)
            has_standby = start_standby();
        usleep(50000);                              /* the work of a real program */
        step++;
        sum += step * step;
    }
    printf("standby: sum %d\n", sum);
    fflush(stdout);
    pvm_delinfo("standby", 0, PvmMboxDefault);
    pvm_exit();
    return 0;
}
