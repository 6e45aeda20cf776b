/* A fabric that is named and that no host has: messages take TCP, and the log of each daemon says why, once. */
//@ ours-only D3: skip
//@ daemon-env PVM_FABRIC=nonesuch;eth9
//@ timeout 60
#include "hosts.h"

#define PvmFabricTasks 1006
#define CHILDREN 3
/* More messages than a task sends before it looks for a fabric. */
#define ROUNDS 12

/* Prints the lines of the log of this host that are about fabrics, without date and offers of libfabric. */
static void show_log(void)
{
    char line[2000], *begin, *end;
    FILE *lines = popen("cat $PVM_TMP/pvml.* | grep 'no fabric'", "r");
    while (lines != NULL && fgets(line, sizeof(line), lines) != NULL) {
        begin = strstr(line, "no fabric");
        end = begin == NULL ? NULL : strchr(begin, ';');
        if (end != NULL)
            *end = 0;
        printf("%s\n", begin == NULL ? line : begin);
    }
    if (lines != NULL)
        pclose(lines);
}

int main(int argc, char **argv)
{
    int tids[CHILDREN], i, k, number;
    (void)argv;
    case_begin();
    if (argc > 1) {
        for (i = 0; i < ROUNDS; i++) {
            pvm_recv(pvm_parent(), 1);
            pvm_upkint(&number, 1, 1);
            number++;
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&number, 1, 1);
            pvm_send(pvm_parent(), 2);
        }
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    for (i = 0; i < CHILDREN; i++)
        tids[i] = spawn_on(i ? "bravo" : "charlie", "child");
    for (k = 0; k < ROUNDS; k++)
        for (i = 0; i < CHILDREN; i++) {
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&k, 1, 1);
            pvm_send(tids[i], 1);
            case_receive(tids[i], 2, PATIENCE);
            number = 0;
            pvm_upkint(&number, 1, 1);
            if (number != k + 1)
                printf("wrong answer %d\n", number);
        }
    SHOW(pvm_getopt(PvmFabricTasks));
    show_log();
    pvm_exit();
    return 0;
}
