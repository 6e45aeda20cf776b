/* When the daemon starts, it also starts the hoster, tasker and tracer that its environment names, and uses
 * them. */
//@ daemon-env PVM_HOSTER=helpers hoster
//@ daemon-env PVM_TASKER=helpers tasker some words
//@ daemon-env PVM_TRACER=helpers tracer
//@ timeout 30
//@ one-host the hoster that starts with the daemon refuses every host
#include "case.h"
#include "tasker.h"
#include <pvmproto.h>
#include <sys/wait.h>

enum { HERE = 1, ASK = 2, TOLD = 3, GONE = 4 };

/* Packs the facts about a helper, for the task that has requested them. */
static void tell(int count, int words)
{
    int parent = pvm_parent();
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&count, 1, 1);
    pvm_pkint(&words, 1, 1);
    pvm_pkint(&parent, 1, 1);
}

/* Sends the answer to a request. */
static void answer(int tag, struct pvmminfo *info)
{
    struct pvmminfo own;
    pvm_getminfo(pvm_getsbuf(), &own);
    own.wid = info->wid;
    pvm_setminfo(pvm_getsbuf(), &own);
    pvm_send(info->src, tag);
}

static void hoster(int words)
{
    int served = 0, count, i, tid;
    char text[4096];
    struct pvmminfo info;
    pvm_reg_hoster();
    for (;;) {
        pvm_getminfo(pvm_recv(-1, -1), &info);
        if (info.tag == ASK) {
            tell(served, words);
            pvm_send(info.src, TOLD);
        }
        if (info.tag != SM_STHOST)
            continue;
        served++;
        pvm_upkint(&count, 1, 1);
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&count, 1, 1);
        while (count-- > 0) {
            pvm_upkint(&tid, 1, 1);
            for (i = 0; i < 5; i++)
                pvm_upkstr(text);
            pvm_pkint(&tid, 1, 1);
            pvm_pkstr("PvmCantStart");
        }
        answer(SM_STHOSTACK, &info);
    }
}

static void tasker(int words)
{
    int served = 0, id, status, i, zero = 0;
    static int tids[16], ids[16];
    static struct tasker_order order;
    struct pvmminfo info;
    struct timeval moment = {0, 20000};
    pvm_reg_tasker();
    for (;;) {
        while ((id = waitpid(-1, &status, WNOHANG)) > 0) {
            for (i = 0; i < served && ids[i] != id; i++)
                continue;
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&tids[i], 1, 1);
            pvm_pkint(&status, 1, 1);
            for (i = 0; i < 4; i++)
                pvm_pkint(&zero, 1, 1);
            pvm_send(0x80000000, SM_TASKX);
        }
        if (pvm_trecv(-1, -1, &moment) <= 0)
            continue;
        pvm_getminfo(pvm_getrbuf(), &info);
        if (info.tag == ASK) {
            tell(served, words);
            pvm_send(info.src, TOLD);
        } else if (info.tag == SM_STTASK) {
            tasker_read(&order);
            tids[served] = order.tid;
            ids[served] = tasker_fork(&order);
            served++;
        }
    }
}

static void tracer(int words)
{
    Pvmtmask mask;
    struct pvmminfo info;
    TEV_MASK_INIT(mask);
    pvm_reg_tracer(0, 666, 0, 667, mask, 0, PvmTraceFull);
    for (;;) {
        pvm_getminfo(pvm_recv(-1, -1), &info);
        if (info.tag == ASK) {
            tell(0, words);
            pvm_send(info.src, TOLD);
        }
    }
}

/* Returns the task that serves as `name`, once there is one. */
static int server(char *name)
{
    struct pvmmboxinfo *boxes;
    int count = 0, turn;
    for (turn = 0; turn < 500; turn++) {
        pvm_getmboxinfo(name, &count, &boxes);
        if (count > 0)
            return boxes[0].mi_owners[0];
        usleep(10000);
    }
    return -1;
}

static void ask(char *name)
{
    int values[3] = {-99, -99, -99}, tid = server(name), i, count;
    struct pvmtaskinfo *tasks;
    case_signal(tid, ASK);
    SHOW(case_receive(tid, TOLD, 5) > 0);
    pvm_upkint(values, 3, 1);
    printf("%s served %d, has %d words, parent %d", name, values[0], values[1], values[2]);
    pvm_tasks(0, &count, &tasks);
    for (i = 0; i < count; i++)
        if (tasks[i].ti_tid == tid)
            printf(", flags %x, name %s, parent %d", tasks[i].ti_flag, strrchr(tasks[i].ti_a_out, '/')
                ? strrchr(tasks[i].ti_a_out, '/') + 1 : tasks[i].ti_a_out, tasks[i].ti_ptid);
    printf("\n");
}

int main(int argc, char **argv)
{
    int children[3], status = -99, i;
    char *name = "192.0.2.7";
    case_begin();
    if (argc > 1 && strcmp(argv[1], "child")) {
        pvm_setopt(PvmAutoErr, 0);
        pvm_mytid();
        pvm_setopt(PvmResvTids, 1);
        if (!strcmp(argv[1], "hoster"))
            hoster(argc);
        if (!strcmp(argv[1], "tasker"))
            tasker(argc);
        tracer(argc);
    }
    if (argc > 1) {
        case_signal(pvm_parent(), HERE);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    ask("###_PVM_HOSTER_###");
    ask("###_PVM_TASKER_###");
    ask("###_PVM_TRACER_###");
    SHOW(case_spawn("child", 3, children));
    SHOW(pvm_notify(PvmTaskExit, GONE, 3, children));
    for (i = 0; i < 3; i++)
        SHOW(case_receive(-1, HERE, 5) > 0);
    for (i = 0; i < 3; i++)
        SHOW(case_receive(-1, GONE, 5) > 0);
    ask("###_PVM_TASKER_###");
    SHOW(pvm_addhosts(&name, 1, &status));
    SHOW(status < 0);
    ask("###_PVM_HOSTER_###");
    pvm_exit();
    return 0;
}
