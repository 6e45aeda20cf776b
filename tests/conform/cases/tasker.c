/* A tasker starts the tasks of its host. */
//@ fresh
#include "tasker.h"
#include <pvmproto.h>
#include <sys/wait.h>

static int tasker(void)
{
    static struct tasker_order order;
    int i, instance, here, total, status = 0, zero = 0;
    struct pvmminfo info;
    pvm_setopt(PvmResvTids, 1);
    status = pvm_reg_tasker();
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&status, 1, 1);
    pvm_send(pvm_parent(), 1);
    pvm_recv(-1, SM_STTASK);
    pvm_getminfo(pvm_getrbuf(), &info);
    tasker_read(&order);
    pvm_upkint(&instance, 1, 1);
    pvm_upkint(&here, 1, 1);
    pvm_upkint(&total, 1, 1);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&order.tid, 1, 1);
    pvm_pkint(&order.flags, 1, 1);
    pvm_pkstr(order.path);
    pvm_pkint(&order.argument_count, 1, 1);
    for (i = 0; i < order.argument_count; i++)
        pvm_pkstr(order.arguments[i]);
    pvm_pkint(&order.variable_count, 1, 1);
    for (i = 0; i < order.variable_count; i++)
        pvm_pkstr(order.environment[i]);
    pvm_pkint(&instance, 1, 1);
    pvm_pkint(&here, 1, 1);
    pvm_pkint(&total, 1, 1);
    pvm_pkint(&info.src, 1, 1);
    pvm_pkint(&info.ctx, 1, 1);
    pvm_send(pvm_parent(), 2);
    waitpid(tasker_fork(&order), &status, 0);
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&order.tid, 1, 1);
    pvm_pkint(&status, 1, 1);
    for (i = 0; i < 4; i++)
        pvm_pkint(&zero, 1, 1);
    pvm_send(0x80000000, SM_TASKX);
    pvm_recv(pvm_parent(), 9);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int server, child, tid, flags, count, i, numbers[5], found = 0;
    char text[4096];
    case_begin();
    if (argc > 1 && !strcmp(argv[1], "tasker"))
        return tasker();
    if (argc > 1) {
        case_signal(pvm_parent(), 3);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(case_spawn_here("tasker", 1, &server));
    SHOW(case_receive(server, 1, 5) > 0);
    pvm_upkint(&i, 1, 1);
    SHOW(i);
    SHOW(case_spawn_here("child", 1, &child));
    SHOW(pvm_notify(PvmTaskExit, 4, 1, &child));
    SHOW(case_receive(server, 2, 5) > 0);
    pvm_upkint(&tid, 1, 1);
    SHOW(tid == child);
    pvm_upkint(&flags, 1, 1);
    SHOW(flags);
    pvm_upkstr(text);
    SHOW(strcmp(text, case_path()));
    pvm_upkint(&count, 1, 1);
    for (i = 0; i < count; i++) {
        pvm_upkstr(text);
        printf("argument %d: %s\n", i, text);
    }
    pvm_upkint(&count, 1, 1);
    for (i = 0; i < count; i++) {
        static const char *known[] = {"PVMEPID=1000000", "PVMCTX=0x", "PVMTMASK=@", "PVMTRCBUF=", "PVMTRCOPT="};
        unsigned j;
        pvm_upkstr(text);
        for (j = 0; j < 5; j++)
            if (!strncmp(text, known[j], strlen(known[j])))
                found |= 1 << j;
        if (i == 0)
            printf("environment begins with %.15s\n", text);
    }
    SHOW_HEX(found);
    pvm_upkint(numbers, 5, 1);
    printf("instance %d here %d total %d src %x ctx %d\n", numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]);
    SHOW(case_receive(child, 3, 5) > 0);
    SHOW(case_receive(-1, 4, 5) > 0);
    SHOW(pvm_pstat(child));
    case_signal(server, 9);
    case_gone(server);
    SHOW(case_spawn_here("child", 1, &child));
    SHOW(case_receive(child, 3, 5) > 0);
    pvm_exit();
    return 0;
}
