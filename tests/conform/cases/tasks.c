/* pvm_tasks, pvm_pstat, pvm_kill, pvm_sendsig. */
//@ fresh
#include "case.h"
#include <signal.h>

static int child_pid;

static void list(const char *what, int where)
{
    struct pvmtaskinfo *tasks;
    int count = -1, i, result = pvm_tasks(where, &count, &tasks);
    printf("tasks of %s: %d, %d\n", what, result, count);
    for (i = 0; result == 0 && i < count; i++)
        printf("  t%x parent %d host %x flag %x name <%s> pid %s\n", tasks[i].ti_tid,
               tasks[i].ti_ptid == pvm_mytid() ? 1 : tasks[i].ti_ptid, tasks[i].ti_host, tasks[i].ti_flag,
               tasks[i].ti_a_out + (strrchr(tasks[i].ti_a_out, '/') ? strrchr(tasks[i].ti_a_out, '/') + 1 - tasks[i].ti_a_out : 0),
               tasks[i].ti_pid == getpid() ? "mine" : tasks[i].ti_pid == child_pid ? "child's" : "other");
}

static void on_signal(int number)
{
    printf("caught signal %d\n", number);
}

int main(int argc, char **argv)
{
    char *child_only[] = {"child", NULL};
    int tids[2], me, count, host;
    case_begin();
    if (argc > 1) {
        pvm_setopt(PvmAutoErr, 0);
        int pid = getpid();
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&pid, 1, 1);
        if (pvm_parent() > 0)
            pvm_send(pvm_parent(), 1);
        pause();
        return 0;
    }
    me = pvm_mytid();
    host = pvm_tidtohost(me);
    SHOW(case_spawn("child", 1, tids));
    case_receive(tids[0], 1, 5);
    pvm_upkint(&child_pid, 1, 1);
    list("all", 0);
    list("the host", host);
    list("me", me);
    list("the child", tids[0]);
    list("nobody", me | 0x3fff0);
    list("no host", 0x3ffc0000);
    list("a task of no host", 0x3ffc0001);
    list("-1", -1);
    SHOW(pvm_tasks(0, NULL, NULL));
    SHOW(pvm_tasks(0, &count, NULL));
    SHOW(count);
    SHOW(pvm_spawn("tasks", child_only, PvmNoSpawnParent, "", 1, tids + 1));
    usleep(300000);
    list("the orphan", tids[1]);
    SHOW(pvm_pstat(me));
    SHOW(pvm_pstat(tids[0]));
    SHOW(pvm_pstat(me | 0x3fff0));
    SHOW(pvm_pstat(0x3ffc0001));
    SHOW(pvm_pstat(host));
    SHOW(pvm_pstat(0));
    SHOW(pvm_pstat(-1));
    signal(SIGUSR1, on_signal);
    SHOW(pvm_sendsig(me, SIGUSR1));
    usleep(200000);
    SHOW(pvm_sendsig(me, 0));
    SHOW(pvm_sendsig(tids[0], 0));
    SHOW(pvm_sendsig(me | 0x3fff0, SIGTERM));
    SHOW(pvm_sendsig(0x3ffc0001, SIGTERM));
    SHOW(pvm_sendsig(host, SIGTERM));
    SHOW(pvm_sendsig(0, SIGTERM));
    SHOW(pvm_kill(host));
    SHOW(pvm_kill(-1));
    SHOW(pvm_kill(me | 0x3fff0));
    SHOW(pvm_kill(tids[0]));
    case_gone(tids[0]);
    SHOW(pvm_pstat(tids[0]));
    SHOW(pvm_kill(tids[0]));
    SHOW(pvm_sendsig(tids[1], SIGKILL));
    case_gone(tids[1]);
    list("all", 0);
    pvm_exit();
    return 0;
}
