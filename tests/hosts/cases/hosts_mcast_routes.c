/* pvm_mcast by every way to tasks of all hosts: each receives each message once and whole, in order with all others of
 * the same sender. */
//@ ours-only 2.9: skip
//@ timeout 90
#include "hosts.h"

#define TASKS 8
#define MESSAGES 48

static const int sizes[] = {0, 300, 5000, 70000, 40000, 1000000, 4096, 200000};

/* Returns the bytes of message number i. */
static char *body(int i, int *size)
{
    int k;
    char *bytes;
    *size = sizes[i % 8];
    bytes = malloc(*size + 1);
    for (k = 0; k < *size; k++)
        bytes[k] = (char)(k * 7 + k / 251 + i);
    return bytes;
}

static void child(void)
{
    int parent = pvm_parent(), i, number, size, well = 1;
    for (i = 0; i < MESSAGES; i++) {
        char *bytes = body(i, &size), *came = calloc(1, size + 1);
        if (case_receive(parent, -1, PATIENCE) <= 0) {
            well = -i;
            break;
        }
        pvm_upkint(&number, 1, 1);
        pvm_upkbyte(came, size, 1);
        if (number != i || memcmp(bytes, came, size))
            well = 0;
        free(bytes);
        free(came);
    }
    if (pvm_nrecv(parent, -1) > 0)
        well = 0; /* one too many */
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&well, 1, 1);
    pvm_send(parent, 9);
}

int main(int argc, char **argv)
{
    int tids[TASKS], i, k, route, well, size;
    case_begin();
    if (argc > 1) {
        child();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(pvm_getopt(PvmMcastRoute));
    SHOW(pvm_setopt(PvmMcastRoute, -1));
    SHOW(pvm_setopt(PvmMcastRoute, 100));
    for (route = PvmMcastAutomatic; route <= PvmMcastBroadcast; route++) {
        SHOW(pvm_setopt(PvmMcastRoute, route));
        SHOW(case_spawn("child", TASKS, tids));
        for (i = 0; i < MESSAGES; i++) {
            char *bytes = body(i, &size);
            pvm_initsend(PvmDataRaw);
            pvm_pkint(&i, 1, 1);
            pvm_pkbyte(bytes, size, 1);
            free(bytes);
            if (i % 5 == 4)
                for (k = 0; k < TASKS; k++)
                    pvm_send(tids[k], 7);
            else
                pvm_mcast(tids, TASKS, 8);
        }
        for (i = 0; i < TASKS; i++) {
            well = case_receive(tids[i], 9, PATIENCE) > 0;
            if (well)
                pvm_upkint(&well, 1, 1);
            printf("way %d, task %d: %d\n", route, i, well);
        }
    }
    pvm_exit();
    return 0;
}
