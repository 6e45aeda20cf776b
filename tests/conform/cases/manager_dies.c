/* A resource manager dies with pending requests: the daemon answers these and all later ones. On PVM 3.4 the
 * tasks that have sent them wait for ever, and so do all later requests. */
//@ fresh
//@ ours-only 2.12: hangs
//@ timeout 12
#include "case.h"
#include <pvmproto.h>

enum { REGISTERED = 1, ASKED = 2, RESULT = 3, GONE = 4 };

static char *questions[] = {"spawn", "tasks", "config", "addhosts", "delhosts", "notify"};
enum { QUESTIONS = 6 };

/* Receives and prints requests, but answers none. */
static void manager(void)
{
    struct pvmhostinfo *hosts = NULL;
    struct pvmminfo info;
    int result, parent = pvm_parent();
    pvm_setopt(PvmResvTids, 1);
    result = pvm_reg_rm(&hosts);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&result, 1, 1);
    pvm_send(parent, REGISTERED);
    for (;;) {
        pvm_getminfo(pvm_recv(-1, -1), &info);
        if (info.tag != SM_SPAWN && info.tag != SM_TASK && info.tag != SM_CONFIG && info.tag != SM_ADDHOST
            && info.tag != SM_DELHOST && info.tag != SM_NOTIFY)
            continue;
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&info.tag, 1, 1);
        pvm_send(parent, ASKED);
    }
}

/* Sends one query, and prints the result. */
static void client(char *question)
{
    struct pvmtaskinfo *tasks;
    struct pvmhostinfo *hosts;
    int parent = pvm_parent(), value[2] = {-99, -99}, result = -99;
    char *name = "no-such-host.invalid";
    pvm_setopt(PvmAutoErr, 0);
    if (!strcmp(question, "spawn"))
        result = case_spawn("child", 2, value);
    else if (!strcmp(question, "tasks"))
        result = pvm_tasks(pvm_mytid(), &value[0], &tasks);
    else if (!strcmp(question, "config"))
        result = pvm_config(&value[0], &value[1], &hosts);
    else if (!strcmp(question, "addhosts"))
        result = pvm_addhosts(&name, 1, value);
    else if (!strcmp(question, "delhosts"))
        result = pvm_delhosts(&name, 1, value);
    else if (!strcmp(question, "notify"))
        result = pvm_notify(PvmTaskExit, GONE, 1, &parent);
    pvm_initsend(PvmDataDefault);
    pvm_pkstr(question);
    pvm_pkint(&result, 1, 1);
    pvm_pkint(value, 2, 1);
    pvm_send(parent, RESULT);
    pvm_exit();
}

static void show_result(int from)
{
    int result = -98, value[2] = {-98, -98};
    char question[16] = "nothing";
    if (case_receive(from, RESULT, 5) > 0) {
        pvm_upkstr(question);
        pvm_upkint(&result, 1, 1);
        pvm_upkint(value, 2, 1);
    }
    printf("%s: %d, %d\n", question, result, value[0] > 0 ? 1 : value[0]);
}

int main(int argc, char **argv)
{
    int server, clients[QUESTIONS], i, value = -99;
    char *arguments[] = {"client", NULL, NULL};
    case_begin();
    if (argc > 1 && !strcmp(argv[1], "manager"))
        manager();
    if (argc > 2) {
        client(argv[2]);
        return 0;
    }
    if (argc > 1) {
        pvm_mytid();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(case_spawn("manager", 1, &server));
    SHOW(case_receive(server, REGISTERED, 5) > 0);
    pvm_upkint(&value, 1, 1);
    SHOW(value);
    for (i = 0; i < QUESTIONS; i++) {
        arguments[1] = questions[i];
        SHOW(pvm_spawn(case_path(), arguments, PvmTaskDefault, "", 1, &clients[i]));
        SHOW(case_receive(server, ASKED, 5) > 0);
        pvm_upkint(&value, 1, 1);
        printf("the manager has %s\n", value == SM_SPAWN ? "SM_SPAWN" : value == SM_TASK ? "SM_TASK"
            : value == SM_CONFIG ? "SM_CONFIG" : value == SM_ADDHOST ? "SM_ADDHOST"
            : value == SM_DELHOST ? "SM_DELHOST" : "SM_NOTIFY");
    }
    SHOW(pvm_sendsig(server, 9));
    for (i = 0; i < QUESTIONS; i++)
        show_result(clients[i]);
    /* From now on the daemon alone answers, both to earlier tasks and to new ones. */
    for (i = 0; i < QUESTIONS; i++) {
        arguments[1] = questions[i];
        SHOW(pvm_spawn(case_path(), arguments, PvmTaskDefault, "", 1, &clients[0]));
        show_result(clients[0]);
    }
    SHOW(pvm_pstat(server));
    /* Another manager may register. */
    SHOW(case_spawn("manager", 1, &server));
    SHOW(case_receive(server, REGISTERED, 5) > 0);
    pvm_upkint(&value, 1, 1);
    SHOW(value);
    SHOW(pvm_kill(server));
    case_gone(server);
    pvm_exit();
    return 0;
}
