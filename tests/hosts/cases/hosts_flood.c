/* All tasks send to all others while nobody receives: no send waits for a receiver. */
//@ timeout 120
#include "hosts.h"

#define TASKS 4
#define MESSAGES 60
#define LENGTH 100000

int main(int argc, char **argv)
{
    int tids[TASKS], i, k, mine, wrong, result;
    static char bytes[LENGTH];
    case_begin();
    if (argc > 1) {
        pvm_recv(pvm_parent(), 1);
        pvm_upkint(&mine, 1, 1);
        pvm_upkint(tids, TASKS, 1);
        for (i = 0; i < MESSAGES; i++) {
            for (k = 0; k < TASKS; k++) {
                memset(bytes, mine * 50 + i, LENGTH);
                pvm_initsend(PvmDataRaw);
                pvm_pkbyte(bytes, LENGTH, 1);
                if (k != mine)
                    pvm_send(tids[k], 5);
            }
        }
        case_signal(pvm_parent(), 2);
        pvm_recv(pvm_parent(), 3);
        for (wrong = k = 0; k < TASKS; k++) {
            for (i = 0; k != mine && i < MESSAGES; i++) {
                if (case_receive(tids[k], 5, PATIENCE) <= 0) {
                    wrong += 1000;
                    break;
                }
                pvm_upkbyte(bytes, LENGTH, 1);
                wrong += bytes[0] != (char)(k * 50 + i) || bytes[LENGTH - 1] != (char)(k * 50 + i);
            }
        }
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&wrong, 1, 1);
        pvm_send(pvm_parent(), 4);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(spawn_on_all("child", tids));
    for (i = 0; i < TASKS; i++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&i, 1, 1);
        pvm_pkint(tids, TASKS, 1);
        pvm_send(tids[i], 1);
    }
    for (i = 0; i < TASKS; i++)
        SHOW(case_receive(tids[i], 2, PATIENCE) > 0);
    for (i = 0; i < TASKS; i++)
        case_signal(tids[i], 3);
    for (i = 0; i < TASKS; i++) {
        result = case_receive(tids[i], 4, 3 * PATIENCE);
        wrong = -1;
        pvm_upkint(&wrong, 1, 1);
        printf("task %d: %d, %d wrong\n", i, result > 0, wrong);
    }
    pvm_exit();
    return 0;
}
