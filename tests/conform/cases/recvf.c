/* A matching function of the user. */
#include "case.h"

static int calls;
static int wanted;

static int highest_tag(int message, int tid, int tag)
{
    int found = 0;
    calls++;
    pvm_bufinfo(message, NULL, &found, NULL);
    return found >= 100 ? found : 0;
}

static int take_wanted(int message, int tid, int tag)
{
    int found = 0;
    pvm_bufinfo(message, NULL, &found, NULL);
    return found == wanted;
}

static int abort_receive(int message, int tid, int tag)
{
    return PvmNotImpl;
}

static void put(int tag, int context)
{
    int old = pvm_setcontext(context);
    pvm_initsend(PvmDataDefault);
    pvm_send(pvm_mytid(), tag);
    pvm_setcontext(old);
}

static int tag_of(int message)
{
    int tag = -1;
    pvm_bufinfo(message, NULL, &tag, NULL);
    return tag;
}

int main(void)
{
    int (*first)(), (*second)(), (*third)();
    case_begin();
    pvm_mytid();
    first = pvm_recvf(highest_tag);
    SHOW(first != NULL);
    put(100, 0);
    put(7, 0);
    put(300, 5); /* the function is called for every context */
    put(200, 0);
    put(300, 0);
    put(9, 0);
    pvm_recvf(first);
    SHOW(tag_of(case_own(9)));
    second = pvm_recvf(highest_tag);
    SHOW(second == first);
    SHOW(tag_of(pvm_probe(1, 2)));
    SHOW(tag_of(pvm_recv(1, 2)));
    SHOW(pvm_bufinfo(pvm_getrbuf(), NULL, NULL, NULL));
    SHOW(tag_of(pvm_nrecv(1, 2)));
    SHOW(tag_of(pvm_recv(1, 2)));
    SHOW(tag_of(pvm_recv(1, 2)));
    SHOW(pvm_nrecv(1, 2));
    SHOW(calls > 0);
    third = pvm_recvf(take_wanted);
    SHOW(third == highest_tag);
    wanted = 7;
    SHOW(tag_of(pvm_nrecv(1, 2)));
    SHOW(pvm_nrecv(1, 2));
    put(11, 0);
    put(12, 0);
    pvm_recvf(NULL);
    SHOW(tag_of(case_own(12)));
    pvm_recvf(abort_receive);
    SHOW(pvm_recv(-1, -1));
    SHOW(pvm_nrecv(-1, -1));
    SHOW(case_receive(-1, -1, 1));
    SHOW(pvm_probe(-1, -1));
    SHOW(pvm_recvf(NULL) == (int (*)())abort_receive);
    SHOW(tag_of(pvm_nrecv(-1, -1)));
    pvm_exit();
    return 0;
}
