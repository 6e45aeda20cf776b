/* What a task may do with mailbox entries of another task; waiting for an entry. */
//@ fresh
#include "case.h"

static int put(char *name, int flags)
{
    int value = 5;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    return pvm_putinfo(name, pvm_getsbuf(), flags);
}

static int owner(void)
{
    int parent = pvm_parent();
    put("plain", PvmMboxDefault);
    put("open", PvmMboxOverWritable);
    put("lasting", PvmMboxPersistent);
    put("lasting open", PvmMboxPersistent | PvmMboxOverWritable);
    put("several", PvmMboxMultiInstance);
    case_signal(parent, 1);
    pvm_recv(parent, 2);
    usleep(100000);
    put("awaited", PvmMboxDefault);
    pvm_recv(parent, 3);
    pvm_exit();
    return 0;
}

static void list(void)
{
    struct pvmmboxinfo *boxes;
    int count, i, j;
    SHOW(pvm_getmboxinfo(NULL, &count, &boxes));
    for (i = 0; i < count; i++)
        for (j = 0; j < boxes[i].mi_nentries; j++)
            printf("  %s: %d owner %s flags %d\n", boxes[i].mi_name, boxes[i].mi_indices[j],
                   boxes[i].mi_owners[j] == 0           ? "none"
                   : boxes[i].mi_owners[j] == pvm_mytid() ? "me"
                                                          : "other",
                   boxes[i].mi_flags[j]);
}

int main(int argc, char **argv)
{
    int child;
    case_begin();
    if (argc > 1)
        return owner();
    pvm_mytid();
    SHOW(case_spawn("owner", 1, &child));
    SHOW(case_receive(child, 1, 5) > 0);
    list();
    SHOW(put("plain", PvmMboxDefault));
    SHOW(put("plain", PvmMboxOverWritable));
    SHOW(put("plain", PvmMboxMultiInstance));
    SHOW(put("several", PvmMboxMultiInstance));
    SHOW(put("open", PvmMboxDefault));
    SHOW(put("lasting", PvmMboxDefault));
    SHOW(pvm_delinfo("plain", 0, PvmMboxDefault));
    SHOW(pvm_delinfo("lasting open", 0, PvmMboxDefault));
    SHOW(pvm_recvinfo("plain", 0, PvmMboxDefault) > 0);
    SHOW(pvm_recvinfo("plain", 0, PvmMboxReadAndDelete));
    SHOW(pvm_recvinfo("plain", 1, PvmMboxReadAndDelete) > 0);
    list();
    case_signal(child, 2);
    SHOW(pvm_recvinfo("awaited", 0, PvmMboxWaitForInfo) > 0);
    case_signal(child, 3);
    case_gone(child);
    list();
    SHOW(pvm_delinfo("open", 0, PvmMboxDefault));
    pvm_exit();
    return 0;
}
