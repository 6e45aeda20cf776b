/* A task without a parent; programs/console_parent.sh has the console spawn it. */
#include "case.h"

int main(void)
{
    int *siblings;
    struct pvmtaskinfo *tasks;
    case_begin();
    SHOW(pvm_parent());
    SHOW(pvm_siblings(&siblings));
    SHOW(siblings[0] == pvm_mytid());
    SHOW(pvm_tasks(pvm_mytid(), NULL, &tasks));
    SHOW(tasks[0].ti_ptid);
    SHOW_HEX(tasks[0].ti_flag);
    SHOW(pvm_getopt(PvmOutputTid) > 0);
    pvm_exit();
    return 0;
}
