/* pvm_mcast to tasks of all hosts: each receives the message once, in order with earlier and later messages. */
#include "hosts.h"

#define TASKS 12

static void child(void)
{
    int parent = pvm_parent(), me = 0, i, value, well = 1, size;
    char *bytes;
    pvm_recv(parent, 1);
    pvm_upkint(&me, 1, 1);
    for (i = 0; i < 40; i++) {
        if (case_receive(parent, -1, PATIENCE) <= 0) {
            well = -i;
            break;
        }
        pvm_upkint(&value, 1, 1);
        pvm_upkint(&size, 1, 1);
        bytes = calloc(1, size + 1);
        pvm_upkbyte(bytes, size, 1);
        if (value != i || (size && (bytes[0] != (char)i || bytes[size - 1] != (char)i)))
            well = 0;
        free(bytes);
    }
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&me, 1, 1);
    pvm_pkint(&well, 1, 1);
    pvm_send(parent, 9);
}

int main(int argc, char **argv)
{
    int tids[TASKS + 3], i, k, me, well, size;
    case_begin();
    if (argc > 1) {
        child();
        pvm_exit();
        return 0;
    }
    tids[TASKS] = pvm_mytid(); /* the sender gets no message */
    SHOW(case_spawn("child", TASKS, tids));
    for (i = 0; i < TASKS; i++) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&i, 1, 1);
        pvm_send(tids[i], 1);
    }
    tids[TASKS + 1] = tids[3]; /* gets one message although it is named twice */
    for (i = 0; i < 40; i++) {
        char *bytes;
        size = i % 4 == 0 ? 0 : i * i * 50;
        bytes = malloc(size + 1);
        memset(bytes, i, size);
        pvm_initsend(i % 2 ? PvmDataDefault : PvmDataRaw);
        pvm_pkint(&i, 1, 1);
        pvm_pkint(&size, 1, 1);
        pvm_pkbyte(bytes, size, 1);
        free(bytes);
        if (i % 3 == 2)
            for (k = 0; k < TASKS; k++)
                pvm_send(tids[k], 7);
        else
            pvm_mcast(tids, TASKS + 2, 8);
    }
    for (i = 0; i < TASKS; i++) {
        SHOW(case_receive(tids[i], 9, PATIENCE) > 0);
        pvm_upkint(&me, 1, 1);
        pvm_upkint(&well, 1, 1);
        printf("task %d: %d\n", me, well);
    }
    SHOW(case_receive(-1, -1, 0.1));
    pvm_exit();
    return 0;
}
