/* A spawned task that has called pvm_exit exists until its process ends; any other task is removed
 * at once. */
#include "case.h"

int main(int argc, char **argv)
{
    int child, tid, me;
    case_begin();
    if (argc > 1) {
        int parent = pvm_parent();
        case_signal(parent, 1);
        pvm_exit();
        usleep(700000);
        return 0;
    }
    me = pvm_mytid();
    SHOW(case_spawn("child", 1, &child));
    SHOW(pvm_notify(PvmTaskExit, 2, 1, &child));
    SHOW(case_receive(child, 1, 5) > 0);
    usleep(200000);
    SHOW(pvm_pstat(child));
    SHOW(pvm_nrecv(-1, 2));
    SHOW(case_receive(-1, 2, 5) > 0);
    SHOW(pvm_pstat(child));
    tid = me;
    SHOW(pvm_exit());
    SHOW(pvm_mytid() != me);
    SHOW(pvm_pstat(tid));
    pvm_exit();
    return 0;
}
