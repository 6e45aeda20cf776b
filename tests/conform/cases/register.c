/* Registration as hoster, tasker, tracer and resource manager: on, off, and while another task is registered. */
//@ fresh
#include "case.h"
#include <sys/wait.h>

static void boxes(void)
{
    struct pvmmboxinfo *boxes;
    int count, i;
    pvm_getmboxinfo("###_PVM", &count, &boxes);
    for (i = 0; i < count; i++)
        printf("  %s flags %d owner me %d\n", boxes[i].mi_name, boxes[i].mi_flags[0], boxes[i].mi_owners[0] == pvm_mytid());
}

static void flags(void)
{
    struct pvmtaskinfo *tasks;
    int count;
    pvm_tasks(pvm_mytid(), &count, &tasks);
    printf("flags %x\n", tasks[0].ti_flag);
}

static int rival(void)
{
    struct pvmhostinfo *hosts;
    int result[4];
    Pvmtmask mask;
    TEV_MASK_INIT(mask);
    pvm_setopt(PvmAutoErr, 0);
    result[0] = pvm_reg_hoster();
    result[1] = pvm_reg_tasker();
    result[2] = pvm_reg_tracer(1, 2, 3, 4, mask, 0, 1);
    hosts = NULL;
    result[3] = 0;
    (void)hosts;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(result, 4, 1);
    pvm_send(pvm_parent(), 1);
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int child, result[4], i, status = 0;
    Pvmtmask mask;
    case_begin();
    if (argc > 1 && !strcmp(argv[1], "second tasker")) {
        pvm_mytid();
        pvm_setopt(PvmAutoErr, 0);
        return -pvm_reg_tasker();
    }
    TEV_MASK_INIT(mask);
    if (argc > 1)
        return rival();
    pvm_mytid();
    SHOW(case_spawn("rival", 1, &child));
    SHOW(case_receive(child, 1, 5) > 0);
    pvm_upkint(result, 4, 1);
    case_gone(child);
    for (i = 0; i < 3; i++)
        printf("alone: %d\n", result[i]);
    boxes();
    SHOW(pvm_reg_hoster());
    flags();
    boxes();
    SHOW(pvm_reg_hoster());
    flags();
    boxes();
    SHOW(pvm_reg_tracer(1, 2, 3, 4, mask, 0, 1));
    flags();
    boxes();
    SHOW(pvm_reg_tracer(1, 2, 3, 4, mask, 0, 1));
    flags();
    SHOW(pvm_reg_hoster());
    SHOW(pvm_reg_tracer(1, 2, 3, 4, mask, 0, 1));
    SHOW(case_spawn("rival", 1, &child));
    SHOW(case_receive(child, 1, 5) > 0);
    pvm_upkint(result, 4, 1);
    case_gone(child);
    printf("taken: hoster %d tracer %d\n", result[0], result[2]);
    SHOW(pvm_reg_tasker());
    flags();
    boxes();
    fflush(stdout);
    if (fork() == 0) {
        execl(case_path(), "register", "second tasker", (char *)NULL); /* not spawned: the tasker would start it */
        _exit(99);
    }
    wait(&status);
    printf("second tasker: %d\n", -WEXITSTATUS(status));
    SHOW(pvm_reg_tasker());
    flags();
    boxes();
    pvm_exit();
    pvm_mytid();
    boxes();
    pvm_exit();
    return 0;
}
