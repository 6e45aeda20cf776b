/* Numbers with a sign where none is expected: the length of a string, the flags of a mailbox, the seconds of a limit. */
#include "case.h"

static void unpack(int encoding, int length)
{
    char text[] = "unchanged";
    int value = 7;
    pvm_initsend(encoding);
    pvm_pkint(&length, 1, 1);
    pvm_pkint(&value, 1, 1);
    pvm_send(pvm_mytid(), 1);
    case_own(1);
    printf("encoding %d length %d: ", encoding, length);
    SHOW(pvm_upkstr(text));
    value = 0;
    SHOW(pvm_upkint(&value, 1, 1));
    printf("%s, then %d\n", text, value);
}

static void put(unsigned flags)
{
    int index;
    pvm_initsend(PvmDataDefault);
    index = pvm_putinfo("negative", pvm_getsbuf(), (int)flags);
    printf("flags %x: index %d\n", flags, index);
    SHOW(pvm_recvinfo("negative", index, PvmMboxDefault) > 0);
    SHOW(pvm_delinfo("negative", index, PvmMboxDefault) == index);
}

/* Prints whether the limit is a long time, and whether at least its seconds pass: negative microseconds are none. */
static void receive(long seconds, long microseconds)
{
    struct timeval limit, begin, end;
    double passed;
    limit.tv_sec = seconds;
    limit.tv_usec = microseconds;
    gettimeofday(&begin, NULL);
    SHOW(pvm_trecv(-1, 77, &limit));
    gettimeofday(&end, NULL);
    passed = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_usec - begin.tv_usec) / 1e6;
    printf("{%ld, %ld} is a long time: %d, and its seconds pass: %d\n", seconds, microseconds, passed >= 2,
           passed >= (double)seconds);
}

int main(void)
{
    case_begin();
    pvm_mytid();
    pvm_setopt(PvmAutoErr, 0);
    unpack(PvmDataDefault, -1);
    unpack(PvmDataRaw, -1);
    unpack(PvmDataDefault, -1000);
    unpack(PvmDataDefault, 0);
    put(0x80000000u);
    put(0xffffffffu);
    put(0x80000000u | 5 << PvmMboxDirectIndexShift);
    put(0x80000000u | PvmMboxMultiInstance);
    receive(-1, 0);
    receive(-1, 4100000);
    receive(0, 2100000);
    receive(0, -500000);
    receive(1, -500000);
    receive(2, -500000);
    pvm_exit();
    return 0;
}
