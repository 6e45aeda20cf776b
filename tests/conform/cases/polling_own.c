/* What a task sends itself is there at once: for calls that do not wait, whatever their order, and for handlers. */
#include "case.h"

#define TAG_A 1
#define TAG_B 2
#define TAG_H 3

static int handled;

static int handle(int mid)
{
    handled += mid > 0;
    return 0;
}

static void to_self(int me, int tag, int form)
{
    int value = tag;
    if (form)
        pvm_psend(me, tag, &value, 1, PVM_INT);
    else {
        pvm_initsend(PvmDataRaw);
        pvm_pkint(&value, 1, 1);
        pvm_send(me, tag);
    }
}

int main(void)
{
    int me, form;
    case_begin();
    me = pvm_mytid();
    for (form = 0; form < 2; form++) {
        to_self(me, TAG_A, form);
        to_self(me, TAG_A, form);
        to_self(me, TAG_B, form);
        SHOW(pvm_nrecv(me, TAG_B) > 0);
        SHOW(pvm_probe(me, TAG_B) > 0);
        SHOW(pvm_probe(me, TAG_A) > 0);
        SHOW(pvm_nrecv(-1, TAG_A) > 0);
        SHOW(pvm_nrecv(-1, -1) > 0);
        SHOW(pvm_nrecv(-1, -1));
    }
    SHOW(pvm_addmhf(-1, TAG_H, -1, handle) >= 0);
    to_self(me, TAG_H, 0);
    to_self(me, TAG_A, 0);
    to_self(me, TAG_H, 0);
    SHOW(pvm_recv(-1, TAG_A) > 0);
    SHOW(handled);
    pvm_exit();
    return 0;
}
