/* pvm_sendsig, pvm_kill, pvm_pstat, pvm_tasks and pvm_hostsync for other hosts. */
#include "hosts.h"
#include <signal.h>

static volatile int caught;

static void handler(int number)
{
    caught = number;
}

static void child(void)
{
    int parent = pvm_parent(), number;
    signal(SIGUSR1, handler);
    signal(SIGUSR2, handler);
    case_signal(parent, 1);
    while (!caught)
        usleep(2000);
    number = caught;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&number, 1, 1);
    pvm_send(parent, 2);
    pvm_recv(parent, 3);
}

static void list(const char *title, int where, int *known)
{
    struct pvmtaskinfo *tasks;
    int count = -1, i, k, result = pvm_tasks(where, &count, &tasks);
    printf("%s: %d, %d tasks\n", title, result, count);
    for (k = 0; k < 4; k++) {
        for (i = 0; i < count; i++) {
            if (tasks[i].ti_tid == known[k])
                printf("    %d: host %x parent %d flag %x %s pid %d\n", k, tasks[i].ti_host,
                       tasks[i].ti_ptid == pvm_mytid(), tasks[i].ti_flag & 0xf,
                       strrchr(tasks[i].ti_a_out, '/') ? strrchr(tasks[i].ti_a_out, '/') + 1 : tasks[i].ti_a_out,
                       tasks[i].ti_pid > 0);
        }
    }
}

int main(int argc, char **argv)
{
    int tids[4], i, number, host;
    struct timeval clock, delta, now;
    case_begin();
    if (argc > 1) {
        child();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(spawn_on_all("child", tids));
    for (i = 0; i < 4; i++)
        SHOW(case_receive(tids[i], 1, PATIENCE) > 0);
    list("all", 0, tids);
    list("of charlie", host_tid("charlie"), tids);
    list("one", tids[1], tids);
    for (i = 0; i < 4; i++) {
        SHOW(pvm_pstat(tids[i]));
        SHOW(pvm_sendsig(tids[i], i % 2 ? SIGUSR1 : SIGUSR2));
        SHOW(case_receive(tids[i], 2, PATIENCE) > 0);
        pvm_upkint(&number, 1, 1);
        SHOW(number == (i % 2 ? SIGUSR1 : SIGUSR2));
    }
    SHOW(pvm_kill(tids[3]));
    case_gone(tids[3]);
    SHOW(pvm_pstat(tids[3]));
    SHOW(pvm_sendsig(tids[3], SIGUSR1));
    SHOW(pvm_kill(tids[3]));
    list("a dead one", tids[3], tids);
    SHOW(pvm_pstat(host_tid("bravo") | 0x3fff));
    SHOW(pvm_pstat(0x3f << 18 | 1));
    SHOW(pvm_kill(0x3f << 18 | 1));
    SHOW(pvm_tasks(0x3f << 18, &i, NULL));
    for (i = 0; i < 4; i++) {
        host = pvm_tidtohost(tids[i]);
        SHOW(pvm_hostsync(host, &clock, &delta));
        gettimeofday(&now, NULL);
        /* All simulated hosts have the same clock, so the difference is nearly zero. */
        SHOW(now.tv_sec - clock.tv_sec <= 2 && clock.tv_sec - now.tv_sec <= 2);
        SHOW(delta.tv_sec >= -1 && delta.tv_sec <= 0 && delta.tv_usec >= 0 && delta.tv_usec < 1000000);
    }
    SHOW(pvm_hostsync(0x3f << 18, &clock, &delta));
    for (i = 0; i < 3; i++)
        case_signal(tids[i], 3);
    pvm_exit();
    return 0;
}
