/* Message handlers: overlapping ones, their order, the state in which they run, and which calls they may make. */
#include "case.h"

static int ran[8];

static int note(int message)
{
    int tag = -1, value = -1, bytes = -1;
    pvm_bufinfo(message, &bytes, &tag, NULL);
    pvm_upkint(&value, 1, 1);
    printf("handler: tag %d bytes %d value %d rbuf is it %d sbuf %d context %d\n", tag, bytes, value,
           pvm_getrbuf() == message, pvm_getsbuf(), pvm_getcontext());
    ran[0]++;
    return 0;
}

static int other(int message)
{
    printf("other handler\n");
    ran[1]++;
    return -5; /* nobody uses this result */
}

static int restricted(int message)
{
    struct timeval one = {1, 0}, zero = {0, 0};
    int tids[2], count = 0, value = 3;
    struct pvmhostinfo *hosts;
    printf("inside a handler\n");
    SHOW(pvm_initsend(PvmDataDefault) > 0);
    SHOW(pvm_pkint(&value, 1, 1));
    SHOW(pvm_send(pvm_mytid(), 77));
    SHOW(pvm_nrecv(-1, -1));
    SHOW(pvm_probe(-1, -1));
    SHOW(pvm_trecv(-1, -1, &zero));
    SHOW(pvm_trecv(-1, -1, &one));
    SHOW(pvm_recv(-1, -1));
    SHOW(pvm_spawn("x", NULL, 0, "", 1, tids));
    SHOW(pvm_config(&count, NULL, &hosts));
    SHOW(pvm_pstat(pvm_mytid()));
    printf("end of the handler\n");
    return 0;
}

static void put(int tag, int value)
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    pvm_send(pvm_mytid(), tag);
}

/* Waits for a message; after that, all earlier messages have been handled. */
static void settle(void)
{
    int old = pvm_setcontext(0);
    case_signal(pvm_mytid(), 999);
    case_own(999);
    pvm_setcontext(old);
}

int main(void)
{
    int first, second, third, sender, value = 8, message;
    case_begin();
    pvm_mytid();
    SHOW(pvm_addmhf(-1, -1, -1, note));
    first = pvm_addmhf(-1, 5, 0, note);
    SHOW(first);
    SHOW(pvm_addmhf(-1, 5, 0, other));
    SHOW(pvm_addmhf(-1, 5, -1, other));
    SHOW(pvm_addmhf(pvm_mytid(), 5, 0, other));
    SHOW(pvm_addmhf(-1, -1, 0, other));
    second = pvm_addmhf(-1, 6, 0, other);
    SHOW(second - first);
    third = pvm_addmhf(pvm_mytid(), 7, -1, note);
    SHOW(third - second);
    SHOW(pvm_delmhf(-1));
    pvm_setopt(PvmAutoErr, 0);
    SHOW(pvm_delmhf(4711));
    pvm_setopt(PvmAutoErr, 1);
    SHOW(pvm_delmhf(second));
    SHOW(pvm_delmhf(second));
    SHOW(pvm_addmhf(-1, 6, 0, other) == second);
    put(5, 50);
    put(6, 60);
    settle();
    SHOW(ran[0]);
    SHOW(ran[1]);
    SHOW(pvm_nrecv(-1, -1)); /* no message is left */
    pvm_setcontext(31);
    put(7, 70);
    settle();
    SHOW(pvm_getcontext());
    pvm_setcontext(0);
    SHOW(ran[0]);
    /* The active buffers are the same after a handler. */
    put(5, 51);
    sender = pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    pvm_send(pvm_mytid(), 8);
    message = case_own(8);
    SHOW(ran[0]);
    SHOW(pvm_getsbuf() == sender);
    SHOW(pvm_getrbuf() == message);
    pvm_upkint(&value, 1, 1);
    SHOW(value);
    /* A message that already waits is not passed to a new handler. */
    put(20, 1);
    settle();
    SHOW(pvm_addmhf(-1, 20, 0, note) > 0);
    settle();
    SHOW(ran[0]);
    SHOW(pvm_nrecv(-1, 20) > 0);
    SHOW(pvm_addmhf(-1, 21, 0, restricted) > 0);
    put(21, 1);
    settle();
    SHOW(case_own(77) > 0);
    pvm_upkint(&value, 1, 1);
    SHOW(value);
    SHOW(pvm_delmhf(first));
    put(5, 52);
    SHOW(case_own(5) > 0);
    /* PVM prints an additional error in pvm_exit if the place of a deleted handler is empty. */
    SHOW(pvm_addmhf(-1, 5, 0, note) == first);
    SHOW(pvm_exit());
    pvm_setopt(PvmAutoErr, 0);
    SHOW(pvm_delmhf(third));
    return 0;
}
