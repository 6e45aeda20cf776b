/* A program that forks and continues in the child, as daemon(3) does, stays the same task. */
#include "case.h"
#include <fcntl.h>
#include <sys/wait.h>

extern int daemon(int nochdir, int noclose);

/* Ends the first process of a task; from here on its child is the task. */
static void go_on_in_child(const char *how)
{
    int ready[2];
    char byte = 0;
    switch (how[0]) {
    case 'd': /* at once */
        if (daemon(1, 1) < 0)
            exit(3);
        break;
    case 't': /* twice, and both parents end after the child has continued */
        if (fork() != 0)
            _exit(0);
        setsid();
        if (fork() != 0)
            _exit(0);
        break;
    default: /* by exit(), and the child waits until its parent has ended */
        if (pipe(ready) < 0)
            exit(3);
        if (fork() != 0)
            exit(0);
        close(ready[1]);
        if (read(ready[0], &byte, 1) < 0)
            exit(3);
        close(ready[0]);
    }
}

/* Exchanges messages sent before and after the fork, in both directions, and sends data that were packed before
 * it.
 */
static void be_task(char *how, int chief)
{
    int me = pvm_mytid(), value = 0, got;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&me, 1, 1);
    pvm_send(chief, 1);
    pvm_recv(chief, 2); /* a message from before the fork; the next one is still unread */
    usleep(100000);
    pvm_initsend(PvmDataDefault);
    value = 7;
    pvm_pkint(&value, 1, 1);
    go_on_in_child(how);
    pvm_send(chief, 3);
    got = pvm_recv(chief, 4) > 0 && pvm_upkint(&value, 1, 1) == PvmOk ? value : -1;
    pvm_recv(chief, 5);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&got, 1, 1);
    value = pvm_mytid() == me;
    pvm_pkint(&value, 1, 1);
    value = pvm_parent();
    pvm_pkint(&value, 1, 1);
    pvm_send(chief, 6);
    pvm_recv(chief, 8);
    pvm_exit();
    exit(0);
}

static void talk(void)
{
    int task = -1, value = 4711, index;
    SHOW(case_receive(-1, 1, 20) > 0);
    pvm_upkint(&task, 1, 1);
    pvm_notify(PvmTaskExit, 9, 1, &task);
    case_signal(task, 2);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    pvm_send(task, 4);
    SHOW(case_receive(task, 3, 20) > 0);
    pvm_upkint(&value, 1, 1);
    SHOW(value);
    usleep(300000);
    SHOW(pvm_pstat(task));
    SHOW(pvm_nrecv(-1, 9));
    SHOW(case_signal(task, 5));
    SHOW(case_receive(task, 6, 20) > 0);
    for (index = 0; index < 3; index++) {
        value = -1;
        pvm_upkint(&value, 1, 1);
        SHOW(value);
    }
    SHOW(pvm_nrecv(-1, 9));
    SHOW(case_signal(task, 8));
    SHOW(case_receive(-1, 9, 20) > 0);
    case_gone(task);
    SHOW(pvm_pstat(task));
}

/* A spawned task ends with the process that the daemon has started. */
static void spawned(void)
{
    int child;
    SHOW(case_spawn("spawned", 1, &child));
    SHOW(case_receive(child, 1, 20) > 0);
    SHOW(pvm_notify(PvmTaskExit, 9, 1, &child));
    SHOW(case_signal(child, 2));
    SHOW(case_receive(-1, 9, 20) > 0);
    SHOW(pvm_pstat(child));
}

static void be_spawned(void)
{
    case_signal(pvm_parent(), 1);
    pvm_recv(pvm_parent(), 2);
    if (fork() == 0)
        sleep(2);
    _exit(0);
}

int main(int argc, char **argv)
{
    static char *hows[] = {"daemon", "pipe", "twice"};
    int me, index;
    char command[5000];
    case_begin();
    me = pvm_mytid();
    if (argc > 2)
        be_task(argv[1], atoi(argv[2]));
    if (argc > 1)
        be_spawned();
    for (index = 0; index < 3; index++) {
        printf("%s\n", hows[index]);
        sprintf(command, "'%s' %s %d &", case_path(), hows[index], me);
        SHOW(system(command));
        talk();
    }
    spawned();
    pvm_exit();
    return 0;
}
