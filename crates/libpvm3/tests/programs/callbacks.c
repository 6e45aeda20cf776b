/* The library calls the user's functions, and these call the library. */
#include "check.h"

static int seen, me;

static int bigger_is_better(int mid, int tid, int tag)
{
    int value = 0, found = -1, previous;

    (void)tid;
    CHECK(pvm_bufinfo(mid, NULL, &found, NULL) == 0);
    if (found != tag)
        return 0;
    previous = pvm_setrbuf(mid);
    (void)previous;
    (void)value;
    seen++;
    return 0;
}

static int rates_by_tag(int mid, int tid, int tag)
{
    int found = -1;

    (void)tid;
    (void)tag;
    CHECK(pvm_bufinfo(mid, NULL, &found, NULL) == 0);
    seen++;
    return found;
}

static int refuses(int mid, int tid, int tag)
{
    (void)mid, (void)tid, (void)tag;
    return -77;
}

static int handler(int mid)
{
    struct timeval limit = { 1, 0 };
    int value = -1;

    CHECK(mid == pvm_getrbuf() && pvm_getsbuf() == 0);
    CHECK(pvm_upkint(&value, 1, 1) == 0);
    CHECK(pvm_nrecv(-1, -1) == 0 && pvm_probe(-1, -1) == 0);
    pvm_setopt(PvmAutoErr, 0);
    CHECK(pvm_recv(-1, -1) == PvmNotImpl && pvm_trecv(-1, -1, &limit) == PvmNotImpl);
    CHECK(pvm_config(NULL, NULL, NULL) == PvmNotImpl);
    pvm_setopt(PvmAutoErr, 1);
    CHECK(send_int(me, 9, value + 1) == 0);
    return 0;
}

int main(void)
{
    int (*first)(int, int, int), (*second)(int, int, int), i, outgoing, tag;

    me = pvm_mytid();
    CHECK(me > 0);
    first = pvm_recvf(NULL);
    CHECK(first != NULL);
    CHECK(pvm_recvf(rates_by_tag) == first);
    for (i = 2; i < 7; i++)
        CHECK(send_int(me, i % 5 + 2, i) == 0);
    CHECK(pvm_pstat(me) == 0); /* a call that waits reveals all messages that have arrived */
    CHECK(pvm_probe(-1, -1) > 0 && seen == 5);
    i = pvm_recv(-1, -1);
    CHECK(pvm_bufinfo(i, NULL, &tag, NULL) == 0 && tag == 6);
    pvm_setopt(PvmAutoErr, 0);
    CHECK(pvm_recvf(refuses) == rates_by_tag);
    CHECK(pvm_recv(-1, -1) == -77 && pvm_nrecv(-1, -1) == -77 && pvm_errno == -77);
    pvm_setopt(PvmAutoErr, 1);
    second = pvm_recvf(first);
    CHECK(second == refuses);
    for (i = 0; i < 4; i++)
        CHECK(pvm_nrecv(-1, -1) > 0);
    CHECK(pvm_nrecv(-1, -1) == 0);

    /* A matching function that keeps the buffer for itself. */
    CHECK(send_int(me, 2, 5) == 0);
    seen = 0;
    pvm_recvf(bigger_is_better);
    CHECK(pvm_nrecv(-1, 2) == 0);
    pvm_recvf(NULL);
    CHECK(seen == 1);

    CHECK(pvm_addmhf(me, 8, pvm_getcontext(), handler) >= 0);
    outgoing = pvm_initsend(PvmDataRaw);
    i = 41;
    CHECK(pvm_pkint(&i, 1, 1) == 0 && pvm_send(me, 8) == 0);
    CHECK(receive_int(me, 9) == 42);
    CHECK(pvm_getsbuf() == outgoing);
    CHECK(pvm_exit() == 0);
    return 0;
}
