/* Mailboxes from all hosts: entries made on one host are found on others, and removed with their
 * owners. */
//@ fresh
#include "hosts.h"

/* Executes the master's orders: 1 puts, 2 looks up, 3 waits for an entry, 4 deletes, 5 ends. */
static void child(void)
{
    int parent = pvm_parent(), order[3], result, value, count, i, waited;
    char name[64];
    struct pvmmboxinfo *classes;
    while (pvm_recv(parent, 1) > 0) {
        pvm_upkint(order, 3, 1);
        pvm_upkstr(name);
        value = -1;
        result = -99;
        if (order[0] == 1) {
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&order[1], 1, 1);
            result = pvm_putinfo(name, pvm_getsbuf(), order[2]);
        } else if (order[0] == 2 || order[0] == 3) {
            waited = order[0] == 3 ? PvmMboxWaitForInfo : 0;
            result = pvm_recvinfo(name, order[1], PvmMboxDefault | waited | order[2]);
            if (result > 0) {
                result = 1;
                pvm_upkint(&value, 1, 1);
            }
        } else if (order[0] == 4) {
            result = pvm_delinfo(name, order[1], PvmMboxDefault);
        } else if (order[0] == 6) {
            result = pvm_getmboxinfo(name, &count, &classes);
            for (i = 0; result >= 0 && i < count; i++)
                value = classes[i].mi_nentries;
            result = count;
        } else if (order[0] == 5) {
            break;
        }
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&result, 1, 1);
        pvm_pkint(&value, 1, 1);
        pvm_send(parent, 2);
    }
}

static void order(int tid, int what, char *name, int first, int second)
{
    int words[3];
    words[0] = what;
    words[1] = first;
    words[2] = second;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(words, 3, 1);
    pvm_pkstr(name);
    pvm_send(tid, 1);
}

static void answer(const char *what, int tid)
{
    int result = -98, value = -98;
    if (case_receive(tid, 2, PATIENCE) > 0) {
        pvm_upkint(&result, 1, 1);
        pvm_upkint(&value, 1, 1);
    }
    printf("%s: %d %d\n", what, result, value);
}

static void have(const char *what, int tid, int call, char *name, int first, int second)
{
    order(tid, call, name, first, second);
    answer(what, tid);
}

int main(int argc, char **argv)
{
    int tids[4], i, delta_host, status, count;
    char *delta[] = {"delta"};
    struct pvmmboxinfo *classes;
    case_begin();
    if (argc > 1) {
        child();
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(spawn_on_all("child", tids));
    have("bravo puts", tids[1], 1, "one", 11, PvmMboxDefault);
    have("charlie puts again", tids[2], 1, "one", 12, PvmMboxDefault);
    for (i = 0; i < 4; i++)
        have("who looks", tids[i], 2, "one", 0, 0);
    have("charlie puts many", tids[2], 1, "many", 20, PvmMboxMultiInstance);
    have("delta puts many", tids[3], 1, "many", 21, PvmMboxMultiInstance);
    have("alfa looks for the first", tids[0], 2, "many", 0, 0);
    have("alfa looks for the second", tids[0], 2, "many", 1, 0);
    have("bravo counts", tids[1], 6, "many", 0, 0);
    have("bravo takes and deletes", tids[1], 2, "many", 0, PvmMboxReadAndDelete);
    have("bravo counts", tids[1], 6, "many", 0, 0);
    have("bravo deletes another's", tids[1], 4, "many", 1, 0);
    have("delta puts persistent", tids[3], 1, "stays", 30, PvmMboxPersistent);
    have("delta puts for all", tids[3], 1, "for-all", 31, PvmMboxOverWritable);
    have("bravo overwrites it", tids[1], 1, "for-all", 32, PvmMboxOverWritable);
    have("bravo deletes it", tids[1], 4, "for-all", 0, 0);
    order(tids[1], 3, "later", 0, 0);
    order(tids[3], 3, "later", 0, 0);
    usleep(200000);
    have("charlie puts later", tids[2], 1, "later", 40, PvmMboxDefault);
    answer("bravo has waited", tids[1]);
    answer("delta has waited", tids[3]);
    /* An entry is removed with its owner, unless it is persistent. */
    pvm_kill(tids[2]);
    case_gone(tids[2]);
    usleep(100000);
    have("alfa looks for charlie's", tids[0], 2, "later", 0, 0);
    have("alfa looks for delta's", tids[0], 2, "stays", 0, 0);
    delta_host = host_tid("delta");
    SHOW(pvm_notify(PvmHostDelete, 50, 1, &delta_host));
    SHOW(pvm_delhosts(delta, 1, &status));
    SHOW(case_receive(-1, 50, PATIENCE) > 0);
    usleep(300000);
    have("alfa looks for delta's persistent", tids[0], 2, "stays", 0, 0);
    have("alfa looks for delta's other", tids[0], 2, "for-all", 0, 0);
    SHOW(pvm_getmboxinfo("*", &count, &classes));
    for (i = 0; i < count; i++)
        printf("class %s: %d\n", classes[i].mi_name, classes[i].mi_nentries);
    for (i = 0; i < 2; i++)
        order(tids[i], 5, "", 0, 0);
    pvm_exit();
    return 0;
}
