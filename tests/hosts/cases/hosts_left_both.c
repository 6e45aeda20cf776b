/* Two tasks both request a direct link, one of them while the other computes; then one ends while many of its
 * messages are not received yet. */
//@ ours-only D3: skip
//@ timeout 90
//@ no-fabric it counts direct links
#include "hosts.h"
#include "numbered.h"

#define BYTES (1 << 20)
#define MESSAGES 16
#define LEAVERS 5

/* Makes no calls while its parent's link is being made, and then requests a link itself. */
static int leaver(void)
{
    int tag, i, parent = pvm_parent();
    pvm_setopt(PvmRoute, PvmRouteDirect);
    pvm_recv(parent, 1);
    usleep(300000);
    for (;;) {
        pvm_initsend(PvmDataRaw);
        pvm_send(parent, 1);
        pvm_bufinfo(pvm_recv(parent, -1), NULL, &tag, NULL);
        if (tag == 2)
            break;
    }
    for (i = 0; i < MESSAGES; i++)
        send_numbered(parent, 9, i, BYTES);
    pvm_exit();
    return 0;
}

/* Returns how many links the daemon has logged for tasks of this host since the case began. */
static int links_made(void)
{
    int count = -1;
    FILE *lines = popen("cat $PVM_TMP/pvml.* | grep -c 'have a direct link'", "r");
    if (lines == NULL || fscanf(lines, "%d", &count) != 1)
        count = -1;
    if (lines != NULL)
        pclose(lines);
    return count;
}

static void tell(int tid, int tag)
{
    pvm_initsend(PvmDataRaw);
    pvm_send(tid, tag);
}

int main(int argc, char **argv)
{
    int tids[LEAVERS], routes[] = {6, 0x4000}, i, k, count, is_made, unlinked = 0;
    (void)argv;
    case_begin();
    if (argc > 1)
        return leaver();
    pvm_mytid();
    pvm_tickle(2, routes, NULL, NULL);
    pvm_setopt(PvmRoute, PvmRouteDirect);
    for (i = 0; i < LEAVERS; i++)
        tids[i] = spawn_on("bravo", "leaver");
    for (i = 0; i < LEAVERS; i++)
        tell(tids[i], 1);
    for (i = 0; i < LEAVERS; i++) {
        case_receive(tids[i], 1, PATIENCE);
        for (k = 0; k < 2000 && !is_linked(tids[i]); k++) {
            tell(tids[i], 1);
            case_receive(tids[i], 1, PATIENCE);
            usleep(2000);
        }
        is_made = is_linked(tids[i]);
        unlinked += !is_made;
        printf("leaver %d: linked %d\n", i, is_made);
    }
    printf("links %d\n", links_made());
    if (unlinked > 0 && system("grep -h 'direct link' $PVM_TMP/pvml.*") != 0)
        printf("no lines about links in the log\n");
    for (i = 0; i < LEAVERS; i++)
        tell(tids[i], 2);
    sleep(2);
    for (i = 0; i < LEAVERS; i++) {
        for (count = 0; count < MESSAGES; count++)
            if (case_receive(tids[i], 9, PATIENCE / 4) <= 0 || !is_numbered(count))
                break;
        printf("leaver %d: messages %d\n", i, count);
    }
    pvm_exit();
    return 0;
}
