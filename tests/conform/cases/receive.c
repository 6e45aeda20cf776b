/* Matching by source and tag, the order of arrival, and how a receive frees the old receive buffer. */
#include "case.h"

static void put(int tag, int value)
{
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    pvm_send(pvm_mytid(), tag);
}

static int value(void)
{
    int value = -1;
    pvm_upkint(&value, 1, 1);
    return value;
}

int main(void)
{
    struct timeval zero = {0, 0}, negative = {-5, 0}, large = {0, 1300000}, before, after;
    int me, message, again, tag, tid, bytes;
    case_begin();
    me = pvm_mytid();
    put(1, 10);
    put(2, 20);
    put(1, 11);
    put(3, 30);
    case_own(3); /* all messages have arrived by now */
    SHOW(value());
    SHOW(pvm_probe(-1, 9));
    message = pvm_probe(-1, 1);
    SHOW(message > 0);
    SHOW(pvm_probe(-1, 1) == message);
    SHOW(pvm_getrbuf() != message && pvm_getrbuf() > 0);
    SHOW(pvm_bufinfo(message, &bytes, &tag, &tid));
    SHOW(bytes);
    SHOW(tag);
    SHOW(tid == me);
    SHOW(pvm_recv(-1, -1) == message);
    SHOW(value());
    SHOW(pvm_nrecv(me, 1) > 0);
    SHOW(value());
    SHOW(pvm_getrbuf() > 0);
    SHOW(pvm_nrecv(me, 1)); /* finds nothing, but frees the old buffer */
    SHOW(pvm_getrbuf());
    SHOW(pvm_probe(me + 1, -1));
    SHOW(pvm_nrecv(me + 1, -1));
    SHOW(pvm_nrecv(-7, -1));
    SHOW(pvm_nrecv(-1, -7));
    SHOW(pvm_trecv(-1, 2, NULL) > 0);
    SHOW(value());
    again = pvm_getrbuf();
    SHOW(pvm_trecv(-1, 2, &zero));
    SHOW(pvm_getrbuf());
    SHOW(pvm_bufinfo(again, NULL, NULL, NULL));
    SHOW(pvm_trecv(-1, 2, &negative));
    gettimeofday(&before, NULL);
    SHOW(pvm_trecv(-1, 2, &large));
    gettimeofday(&after, NULL);
    SHOW((after.tv_sec - before.tv_sec) * 1000000 + after.tv_usec - before.tv_usec >= 1290000);
    put(5, 50);
    put(5, 51);
    SHOW(pvm_recv(me, 5) > 0);
    again = pvm_setrbuf(0); /* keeps this buffer */
    SHOW(pvm_recv(me, 5) > 0);
    SHOW(value());
    SHOW(pvm_setrbuf(again) > 0);
    SHOW(value());
    SHOW(pvm_errno == 0 || pvm_errno == PvmNoSuchBuf || pvm_errno == PvmNotFound);
    pvm_exit();
    return 0;
}
