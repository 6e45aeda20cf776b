/* Result arrays belong to the library; each function has an array of its own. */
#include "case.h"

int main(void)
{
    struct pvmhostinfo *hosts;
    struct pvmtaskinfo *tasks;
    struct pvmmboxinfo *boxes;
    int count, *siblings, *fds, i;
    case_begin();
    pvm_mytid();
    SHOW(pvm_insert("class", -1, 3));
    SHOW(pvm_config(&count, NULL, &hosts));
    SHOW(pvm_tasks(pvm_mytid(), &count, &tasks));
    SHOW(pvm_getmboxinfo("class", &count, &boxes));
    SHOW(pvm_siblings(&siblings));
    SHOW(pvm_getfds(&fds) > 0);
    SHOW_HEX(pvm_archcode("LINUX64"));
    SHOW_TEXT(hosts[0].hi_arch);
    SHOW(tasks[0].ti_tid == pvm_mytid());
    SHOW_TEXT(boxes[0].mi_name);
    SHOW(siblings[0] == pvm_mytid());
    for (i = 0; i < 100; i++) {
        pvm_config(&count, NULL, &hosts);
        pvm_tasks(0, &count, &tasks);
        pvm_getmboxinfo("*", &count, &boxes);
    }
    SHOW_TEXT(hosts[0].hi_arch);
    SHOW(pvm_delete("class", 0));
    pvm_exit();
    return 0;
}
