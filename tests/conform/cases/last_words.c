/* The messages that a task sent before it died are received before the notify of its death. */
#include "case.h"

int main(int argc, char **argv)
{
    int tids[4], i, turn, value, ordered = 0;
    case_begin();
    if (argc > 1) {
        int parent = pvm_parent();
        for (i = 0; i < 50; i++) {
            pvm_initsend(PvmDataRaw);
            pvm_pkint(&i, 1, 1);
            pvm_send(parent, 1);
        }
        usleep(100000); /* PVM loses messages that the daemon has not read before the task ends */
        _exit(0);       /* no pvm_exit */
    }
    pvm_mytid();
    for (turn = 0; turn < 4; turn++) {
        int next = 0, wrong = 0;
        case_spawn("child", 1, tids);
        pvm_notify(PvmTaskExit, 2, 1, tids);
        for (;;) {
            int tag, message = case_receive(-1, -1, 5);
            if (message <= 0)
                break;
            pvm_bufinfo(message, NULL, &tag, NULL);
            if (tag == 2)
                break;
            pvm_upkint(&value, 1, 1);
            wrong += value != next++;
        }
        ordered += next == 50 && wrong == 0;
    }
    SHOW(ordered);
    pvm_exit();
    return 0;
}
