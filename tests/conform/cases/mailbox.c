/* Mailboxes: put, get, delete, list, flags, errors. */
//@ fresh
//@ differs D17: pvm_getrbuf() != 0: 1 => pvm_getrbuf() != 0: 0
#include "case.h"

static int message(int value)
{
    int id = pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    return id;
}

static int get(char *name, int index, int flags)
{
    int id = pvm_recvinfo(name, index, flags), value = -1;
    if (id < 0)
        return id;
    pvm_upkint(&value, 1, 1);
    return value;
}

static void list(char *pattern)
{
    struct pvmmboxinfo *boxes;
    int count = -1, result, i, j;
    result = pvm_getmboxinfo(pattern, &count, &boxes);
    printf("mailboxes like %s: %d, %d\n", pattern ? pattern : "NULL", result, count);
    for (i = 0; result == 0 && i < count; i++) {
        printf("  %s:", boxes[i].mi_name);
        for (j = 0; j < boxes[i].mi_nentries; j++)
            printf(" index %d owner %s flags %d", boxes[i].mi_indices[j],
                   boxes[i].mi_owners[j] == pvm_mytid() ? "me" : "other", boxes[i].mi_flags[j]);
        printf("\n");
    }
}

int main(void)
{
    struct pvmminfo info;
    int old, count;
    case_begin();
    pvm_mytid();
    list(NULL);
    SHOW(pvm_recvinfo("none", 0, PvmMboxDefault));
    SHOW(pvm_getrbuf() != 0);
    SHOW(pvm_delinfo("none", 0, PvmMboxDefault));
    SHOW(pvm_putinfo("", message(1), PvmMboxDefault));
    SHOW(pvm_putinfo(NULL, message(1), PvmMboxDefault));
    SHOW(pvm_recvinfo("", 0, PvmMboxDefault));
    SHOW(pvm_recvinfo(NULL, 0, PvmMboxDefault));
    SHOW(pvm_delinfo("", 0, PvmMboxDefault));
    SHOW(pvm_delinfo(NULL, 0, PvmMboxDefault));
    SHOW(pvm_putinfo("one", message(1), PvmMboxDefault));
    SHOW(get("one", 0, PvmMboxDefault));
    SHOW(get("one", 1, PvmMboxDefault));
    SHOW(get("one", -1, PvmMboxDefault));
    SHOW(get("one", 1, PvmMboxFirstAvail));
    SHOW(get("one", 0, PvmMboxFirstAvail));
    SHOW(pvm_putinfo("one", message(2), PvmMboxDefault)); /* replaces its own entry */
    SHOW(get("one", 0, PvmMboxDefault));
    SHOW(pvm_putinfo("one", message(3), PvmMboxPersistent));
    list("one");
    SHOW(pvm_putinfo("many", message(10), PvmMboxMultiInstance));
    SHOW(pvm_putinfo("many", message(11), PvmMboxMultiInstance));
    SHOW(pvm_putinfo("many", message(12), PvmMboxMultiInstance | PvmMboxDirectIndex(5)));
    SHOW(pvm_putinfo("many", message(13), PvmMboxMultiInstance));
    SHOW(pvm_putinfo("many", message(14), PvmMboxDirectIndex(7)));
    SHOW(pvm_putinfo("many", message(15), PvmMboxDirectIndex(7) | PvmMboxOverWritable));
    SHOW(pvm_putinfo("many", message(16), PvmMboxMultiInstance | PvmMboxDirectIndex(5)));
    list("many");
    list("*");
    list("o*e");
    list("an");
    list("x");
    list("");
    SHOW(get("many", 3, PvmMboxFirstAvail));
    SHOW(get("many", 5, PvmMboxDefault));
    SHOW(pvm_delinfo("many", 1, PvmMboxDefault));
    SHOW(pvm_delinfo("many", 1, PvmMboxDefault));
    SHOW(get("many", 1, PvmMboxFirstAvail));
    SHOW(pvm_putinfo("many", message(17), PvmMboxMultiInstance)); /* the free index is used again */
    SHOW(get("many", 7, PvmMboxReadAndDelete));
    SHOW(get("many", 7, PvmMboxDefault));
    SHOW(pvm_delinfo("many", -1, PvmMboxDefault));
    SHOW(pvm_delinfo("many", 99, PvmMboxDefault));
    SHOW(get("many", 0, PvmMboxReadAndDelete | PvmMboxFirstAvail));
    list("many");
    pvm_setcontext(9);
    message(99);
    pvm_setsbuf(pvm_getsbuf());
    SHOW(pvm_putinfo("info", pvm_getsbuf(), PvmMboxDefault));
    pvm_setcontext(0);
    old = pvm_recvinfo("info", 0, PvmMboxDefault);
    SHOW(old > 0);
    SHOW(pvm_getminfo(old, &info));
    printf("len %d ctx %d tag %d wid %d enc %x src %d\n", info.len, info.ctx, info.tag, info.wid, info.enc,
           info.src == pvm_mytid());
    SHOW(pvm_recvinfo("info", 0, PvmMboxDefault) > 0); /* frees the old receive buffer */
    SHOW(pvm_freebuf(pvm_getrbuf()));
    SHOW(pvm_getmboxinfo("info", &count, NULL));
    SHOW(count);
    SHOW(pvm_getmboxinfo("info", NULL, NULL));
    pvm_exit();
    pvm_mytid();
    list(NULL); /* only persistent entries outlive their owner */
    pvm_exit();
    return 0;
}
