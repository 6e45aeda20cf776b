/* A tasker dies: the tasks whose start it had been asked for count as ended, those that it had started
 * continue, and the daemon starts tasks itself again. */
//@ fresh
//@ timeout 40
//@ differs 2.12: pvm_pstat(first): -31 => pvm_pstat(first): 0
//@ differs 2.12: case_receive(first, WHAT, 5) > 0: 0 => case_receive(first, WHAT, 5) > 0: 1
#include "case.h"
#include "tasker.h"
#include <pvmproto.h>

enum { REGISTERED = 1, ASKED = 2, HERE = 3, GONE = 4, WHAT = 5 };

/* Starts the first task that is requested, and no later ones. */
static void tasker(void)
{
    static struct tasker_order order;
    int status;
    pvm_setopt(PvmResvTids, 1);
    status = pvm_reg_tasker();
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&status, 1, 1);
    pvm_send(pvm_parent(), REGISTERED);
    pvm_recv(-1, SM_STTASK);
    tasker_read(&order);
    tasker_fork(&order);
    pvm_recv(-1, SM_STTASK);
    case_signal(pvm_parent(), ASKED);
    for (;;)
        pause();
}

/* Reports that it runs, answers one message, and ends. */
static void child(void)
{
    case_signal(pvm_parent(), HERE);
    pvm_recv(pvm_parent(), WHAT);
    case_signal(pvm_parent(), WHAT);
    pvm_exit();
}

int main(int argc, char **argv)
{
    int server, first, second[2], third, value = -99;
    case_begin();
    if (argc > 1 && !strcmp(argv[1], "tasker"))
        tasker();
    if (argc > 1) {
        child();
        return 0;
    }
    pvm_mytid();
    SHOW(case_spawn_here("tasker", 1, &server));
    SHOW(case_receive(server, REGISTERED, 5) > 0);
    pvm_upkint(&value, 1, 1);
    SHOW(value);
    SHOW(case_spawn_here("child", 1, &first));
    SHOW(case_receive(first, HERE, 5) > 0);
    SHOW(case_spawn_here("child", 2, second));
    SHOW(pvm_notify(PvmTaskExit, GONE, 2, second));
    SHOW(case_receive(server, ASKED, 5) > 0);
    SHOW(pvm_pstat(second[0]));
    SHOW(pvm_pstat(second[1]));
    SHOW(pvm_sendsig(server, 9));
    case_gone(server);
    SHOW(case_receive(-1, GONE, 5) > 0);
    SHOW(case_receive(-1, GONE, 5) > 0);
    SHOW(pvm_pstat(second[0]));
    SHOW(pvm_pstat(second[1]));
    /* The living task answers. */
    SHOW(pvm_pstat(first));
    SHOW(case_signal(first, WHAT));
    SHOW(case_receive(first, WHAT, 5) > 0);
    case_gone(first);
    value = pvm_pstat(first);
    SHOW(value);
    SHOW(case_spawn_here("child", 1, &third));
    SHOW(case_receive(third, HERE, 5) > 0);
    SHOW(case_signal(third, WHAT));
    SHOW(case_receive(third, WHAT, 5) > 0);
    pvm_exit();
    return 0;
}
