/* A working resource manager: it starts tasks by SM_EXEC, reports their ends, and gives invented answers about
 * hosts; the daemon notifies it of new and ended tasks. */
//@ fresh
//@ timeout 30
//@ unordered
#include "case.h"
#include <pvmproto.h>

enum { REGISTERED = 1, RESULT = 3, GONE = 4, END = 5, HERE = 6 };

static struct pvmminfo wish;
static int wished = -1, wish_tag, wish_context;

/* Sends the active buffer with this wait id: that of a request, to answer it, or one of its own. */
static void send_with(int tid, int tag, int wait)
{
    struct pvmminfo info;
    pvm_getminfo(pvm_getsbuf(), &info);
    info.wid = wait;
    pvm_setminfo(pvm_getsbuf(), &info);
    pvm_send(tid, tag);
}

static void copy_int(int *value)
{
    pvm_upkint(value, 1, 1);
    pvm_pkint(value, 1, 1);
}

static void copy_text(void)
{
    static char text[4096];
    pvm_upkstr(text);
    pvm_pkstr(text);
}

static void copy_texts(void)
{
    int count;
    copy_int(&count);
    while (count-- > 0)
        copy_text();
}

/* Lets the daemon start the tasks of a spawn request, and answers with their tids. */
static void spawn(struct pvmminfo *request)
{
    int flags, count, i, value, zero = 0, tids[16];
    char file[4096], place[4096];
    pvm_upkstr(file);
    pvm_upkint(&flags, 1, 1);
    pvm_upkstr(place);
    pvm_upkint(&count, 1, 1);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&request->src, 1, 1);
    pvm_pkstr(file);
    pvm_pkint(&flags, 1, 1);
    pvm_pkint(&count, 1, 1);
    copy_texts();
    for (i = 0; i < 6; i++)
        copy_int(&value);
    copy_texts();
    pvm_pkint(&zero, 1, 1);
    pvm_pkint(&count, 1, 1);
    send_with(0x80000000, SM_EXEC, 77);
    pvm_recv(-1, SM_EXECACK);
    pvm_getminfo(pvm_getrbuf(), &wish);
    pvm_upkint(&count, 1, 1);
    pvm_upkint(tids, count, 1);
    printf("manager: spawn of %d, flags %d, wait id %s\n", count, flags, wish.wid == 77 ? "as given" : "lost");
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&count, 1, 1);
    pvm_pkint(tids, count, 1);
    send_with(request->src, SM_SPAWN, request->wid);
}

/* Answers with an invented list of tasks. */
static void tasks(struct pvmminfo *request)
{
    int values[] = {0, 0x40abc, 0x40abd, 0x40000, 6, 4711};
    pvm_initsend(PvmDataDefault);
    pvm_pkint(values, 5, 1);
    pvm_pkstr("made up");
    pvm_pkint(&values[5], 1, 1);
    send_with(request->src, SM_TASK, request->wid);
}

/* Answers that all hosts are added, or deleted. */
static void hosts(struct pvmminfo *request)
{
    int count, i, values[] = {0x80000, 5, 7}, none = 0;
    char names[8][256];
    pvm_upkint(&count, 1, 1);
    for (i = 0; i < count; i++)
        pvm_upkstr(names[i]);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&count, 1, 1);
    if (request->tag == SM_ADDHOST)
        pvm_pkint(&none, 1, 1);
    for (i = 0; i < count; i++) {
        if (request->tag == SM_DELHOST) {
            pvm_pkint(&none, 1, 1);
            continue;
        }
        pvm_pkint(&values[0], 1, 1);
        pvm_pkstr(names[i]);
        pvm_pkstr("SOMEARCH");
        pvm_pkint(&values[1], 2, 1);
        values[0] += 0x40000;
    }
    send_with(request->src, request->tag, request->wid);
}

static void manager(void)
{
    struct pvmhostinfo *list = NULL;
    struct pvmminfo request;
    int parent = pvm_parent(), tid, what, count, status;
    case_begin();
    pvm_setopt(PvmResvTids, 1);
    pvm_reg_rm(&list);
    case_signal(parent, REGISTERED);
    for (;;) {
        pvm_getminfo(pvm_recv(-1, -1), &request);
        switch (request.tag) {
        case SM_SPAWN: spawn(&request); break;
        case SM_TASK: tasks(&request); break;
        case SM_ADDHOST:
        case SM_DELHOST: hosts(&request); break;
        case SM_NOTIFY:
            pvm_upkint(&what, 1, 1);
            pvm_upkint(&wish_context, 1, 1);
            pvm_upkint(&wish_tag, 1, 1);
            pvm_upkint(&count, 1, 1);
            pvm_upkint(&wished, 1, 1);
            printf("manager: a wish of kind %d for %d\n", what, count);
            parent = request.src;
            break;
        case SM_TASKX:
            pvm_upkint(&tid, 1, 1);
            pvm_upkint(&status, 1, 1);
            if (tid != wished)
                break;
            printf("manager: that one ended, status %d\n", status);
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&tid, 1, 1);
            count = pvm_setcontext(wish_context);
            pvm_send(parent, wish_tag);
            pvm_setcontext(count);
            break;
        case END:
            pvm_exit();
            return;
        }
    }
}

static void client(void)
{
    int tids[3] = {-9, -9, -9}, parent = pvm_parent(), count = -9, i, status[2] = {-9, -9};
    struct pvmtaskinfo *list;
    char *names[] = {"one", "two"};
    SHOW(case_spawn("grandchild", 2, tids));
    SHOW(pvm_notify(PvmTaskExit, GONE, 1, &tids[0]));
    for (i = 0; i < 2; i++)
        SHOW(case_receive(tids[i], HERE, 5) > 0);
    SHOW(case_signal(tids[0], END));
    SHOW(case_receive(-1, GONE, 5) > 0);
    pvm_upkint(&count, 1, 1);
    SHOW(count == tids[0]);
    SHOW(pvm_tasks(0, &count, &list));
    printf("%d tasks, %x %x %x %x %s %d\n", count, list[0].ti_tid, list[0].ti_ptid, list[0].ti_host, list[0].ti_flag,
           list[0].ti_a_out, list[0].ti_pid);
    SHOW(pvm_addhosts(names, 2, status));
    printf("%x %x\n", status[0], status[1]);
    SHOW(pvm_delhosts(names, 2, status));
    printf("%d %d\n", status[0], status[1]);
    case_signal(tids[1], END);
    case_signal(parent, RESULT);
    pvm_exit();
}

int main(int argc, char **argv)
{
    int server, child;
    case_begin();
    if (argc > 1 && !strcmp(argv[1], "manager"))
        manager();
    else if (argc > 1 && !strcmp(argv[1], "client"))
        client();
    else if (argc > 1) {
        SHOW(pvm_parent() > 0);
        case_signal(pvm_parent(), HERE);
        pvm_recv(-1, END);
        pvm_exit();
    } else {
        pvm_mytid();
        pvm_catchout(stdout);
        pvm_setopt(PvmShowTids, 0);
        SHOW(case_spawn_here("manager", 1, &server));
        SHOW(case_receive(server, REGISTERED, 5) > 0);
        SHOW(case_spawn_here("client", 1, &child));
        SHOW(case_receive(child, RESULT, 15) > 0);
        case_gone(child);
        case_signal(server, END);
        case_gone(server);
        /* Ends without pvm_exit, since PVM's pvm_exit would wait for the tasks that the manager has started. */
    }
    return 0;
}
