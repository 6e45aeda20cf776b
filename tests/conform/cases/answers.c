/* Long packed messages go to and fro between two tasks many times; then their buffers are used in every other way: they are
 * sent twice, sent to others, filled further, forwarded and kept. No body may change before its last reader has read it. */
#include "case.h"

enum { WORDS = 20000, BACK = 1, MORE = 2, END = 3, MAX = 3 * WORDS };

static int words[MAX];

/* Appends `count` numbers that depend on `seed` to the active send buffer. */
static void pack(int seed, int count)
{
    int i;
    for (i = 0; i < count; i++)
        words[i] = seed * 1000003 + i;
    pvm_pkint(&seed, 1, 1);
    pvm_pkint(&count, 1, 1);
    pvm_pkint(words, count, 1);
}

static void begin(int seed, int count)
{
    pvm_initsend(seed % 2 ? PvmDataRaw : PvmDataDefault);
    pack(seed, count);
}

/* Unpacks what `pack` has packed. Returns the seed, or -1 if anything is wrong. */
static int unpack(void)
{
    int seed, count, i;
    if (pvm_upkint(&seed, 1, 1) < 0 || pvm_upkint(&count, 1, 1) < 0 || count < 0 || count > MAX)
        return -1;
    memset(words, 0, sizeof words);
    if (pvm_upkint(words, count, 1) < 0)
        return -1;
    for (i = 0; i < count; i++)
        if (words[i] != seed * 1000003 + i)
            return -1;
    return seed;
}

/* Answers each message with another body of the same seed. */
static int echo(void)
{
    int tag, seed;
    for (;;) {
        pvm_bufinfo(pvm_recv(pvm_parent(), -1), NULL, &tag, NULL);
        if (tag == END)
            break;
        seed = unpack();
        if (tag == MORE && seed >= 0)
            seed = unpack();
        begin(seed, WORDS - seed % 7);
        pvm_send(pvm_parent(), BACK);
    }
    pvm_exit();
    return 0;
}

static int heard(int tid)
{
    return case_receive(tid, BACK, 20) > 0 ? unpack() : -2;
}

/* Exchanges messages until they have gone to and fro many times. Returns how many answers were right. */
static int exchange(int tid, int first)
{
    int i, right = 0;
    for (i = first; i < first + 30; i++) {
        begin(i, WORDS + i % 5);
        pvm_send(tid, BACK);
        right += heard(tid) == i;
    }
    return right;
}

int main(int argc, char **argv)
{
    int tids[2], i, kept[4], right, buffer;
    case_begin();
    if (argc > 1)
        return echo();
    pvm_mytid();
    case_spawn("echo", 2, tids);
    for (i = 0; i < 2; i++)
        printf("to and fro: %d\n", exchange(tids[i], 100 * i));

    begin(1, WORDS);
    pvm_send(tids[0], BACK);
    printf("an answer while the buffer stays: %d\n", heard(tids[0]));
    pvm_send(tids[0], BACK);
    printf("the buffer again: %d\n", heard(tids[0]));
    pvm_send(tids[1], BACK);
    printf("to another task: %d\n", heard(tids[1]));
    pack(2, 100);
    pvm_send(tids[0], MORE);
    printf("filled further: %d\n", heard(tids[0]));

    printf("to and fro: %d\n", exchange(tids[0], 200));
    begin(3, WORDS);
    pvm_send(tids[1], BACK);
    printf("to another task at first: %d\n", heard(tids[1]));
    begin(4, WORDS);
    pvm_mcast(tids, 2, BACK);
    printf("to both: %d %d\n", heard(tids[0]), heard(tids[1]));
    begin(5, WORDS);
    pvm_mcast(tids, 1, BACK);
    printf("to one by pvm_mcast: %d\n", heard(tids[0]));

    printf("to and fro: %d\n", exchange(tids[0], 300));
    buffer = pvm_setsbuf(pvm_getrbuf());
    pvm_send(tids[0], BACK);
    printf("forwarded: %d\n", heard(tids[0]));
    pvm_setsbuf(buffer);

    /* Messages that are kept stay as they are while others go to and fro. */
    for (i = 0; i < 4; i++) {
        begin(10 + i, WORDS);
        pvm_send(tids[0], BACK);
        if (case_receive(tids[0], BACK, 20) <= 0)
            printf("no answer\n");
        kept[i] = pvm_setrbuf(0);
    }
    printf("to and fro: %d\n", exchange(tids[0], 400));
    for (i = right = 0; i < 4; i++) {
        pvm_freebuf(pvm_setrbuf(kept[i]));
        right += unpack() == 10 + i;
    }
    printf("kept: %d\n", right);

    begin(6, 100);
    pack(7, MAX);
    pvm_send(tids[0], MORE);
    printf("much longer than the first part: %d\n", heard(tids[0]));
    for (i = 0; i < 2; i++)
        printf("to and fro: %d\n", exchange(tids[i], 500));
    for (i = 0; i < 2; i++) {
        pvm_initsend(PvmDataDefault);
        pvm_send(tids[i], END);
        case_gone(tids[i]);
    }
    pvm_exit();
    return 0;
}
