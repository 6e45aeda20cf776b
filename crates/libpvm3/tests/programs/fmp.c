/* FMP by itself, beside PVM in the same process: messages of every length, messages that are too long, tasks that have
 * ended or never lived, wrong parameters. */
#include "check.h"
#include <fmp.h>

#define LONGEST (3 << 20)

static const size_t lengths[] = { 0, 1, 4, 8, 16, 17, 24, 504, 505, 4096, 65536, 300001, LONGEST };
#define LENGTHS (int)(sizeof lengths / sizeof lengths[0])

static unsigned char sent[LONGEST], got[LONGEST + 1];

static void fill(unsigned seed)
{
    size_t i;

    for (i = 0; i < LONGEST; i++)
        sent[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

/* Receives a message and checks all of it. */
static void expect(int source, int tag, size_t length)
{
    fmp_info info;

    memset(got, 0xee, length + 1);
    CHECK(fmp_receive(source, tag, got, sizeof got, &info) == 0);
    CHECK(info.length == length && (source == FMP_ANY || info.source == source) && (tag == FMP_ANY || info.tag == tag));
    CHECK(memcmp(got, sent, length) == 0 && got[length] == 0xee);
}

/* Sends a message of every length, and messages of PVM with the same tags in between. */
static void send_all(int to)
{
    int i;

    for (i = 0; i < LENGTHS; i++) {
        CHECK(fmp_send(to, i, sent, lengths[i]) == 0);
        CHECK(send_int(to, i, 1000 + i) == 0);
        CHECK(pvm_psend(to, i, &i, 1, PVM_INT) == 0);
    }
}

static void receive_all(int from)
{
    fmp_info info;
    int i, value;

    for (i = 0; i < LENGTHS; i++) {
        if (lengths[i] > 0) {
            /* Too little memory: the message stays the next one. */
            memset(got, 0xee, lengths[i]);
            CHECK(fmp_receive(i % 2 ? from : FMP_ANY, FMP_ANY, got, lengths[i] - 1, &info) == FMP_ETRUNC);
            CHECK(info.source == from && info.tag == i && info.length == lengths[i]);
            CHECK(got[0] == 0xee && got[lengths[i] - 1] == 0xee);
            CHECK(fmp_probe_local(FMP_ANY, i, &info) == 1);
            CHECK(info.source == from && info.tag == i && info.length == lengths[i]);
        }
        CHECK(fmp_probe_network(FMP_ANY, FMP_ANY, NULL) == 0);
        expect(FMP_ANY, i % 3 ? i : FMP_ANY, lengths[i]);
    }
    for (i = 0; i < LENGTHS; i++) {
        CHECK(receive_int(from, i) == 1000 + i);
        CHECK(pvm_precv(-1, i, &value, 1, PVM_INT, NULL, NULL, NULL) == 0 && value == i);
    }
    CHECK(pvm_nrecv(-1, -1) == 0 && fmp_probe_local(FMP_ANY, FMP_ANY, NULL) == 0);
}

/* The other task. */
static int child(int parent)
{
    int own = fmp_self(), i;

    CHECK(own > 0 && own != parent && own == pvm_mytid());
    CHECK(fmp_send(parent, 500, &own, sizeof own) == 0);
    fill(1);
    receive_all(parent);
    fill(2);
    send_all(parent);
    /* Round trips, with the receive posted in time and too late. */
    fill(1);
    for (i = 0; i < 4 * LENGTHS; i++) {
        expect(parent, 600, lengths[i % LENGTHS]);
        CHECK(fmp_send(parent, 601, sent, lengths[i % LENGTHS]) == 0);
    }
    /* The last message arrives although this task ends. */
    CHECK(fmp_send(parent, 700, sent, 100000) == 0);
    return 0;
}

static void wrong_parameters(int own)
{
    int byte = 0;

    CHECK(fmp_send(0, 1, &byte, 1) == FMP_EINVAL);
    CHECK(fmp_send(FMP_ANY, 1, &byte, 1) == FMP_EINVAL);
    CHECK(fmp_send(own & ~0x3ffff, 1, &byte, 1) == FMP_EINVAL);
    CHECK(fmp_send(own, FMP_ANY, &byte, 1) == FMP_EINVAL);
    CHECK(fmp_send(own, 1, NULL, 1) == FMP_EINVAL);
    CHECK(fmp_send(own, 1, &byte, (size_t)FMP_LENGTH_MAX + 1) == FMP_EMSGSIZE);
    CHECK(fmp_receive(0, 1, &byte, 1, NULL) == FMP_EINVAL);
    CHECK(fmp_receive(own, -2, &byte, 1, NULL) == FMP_EINVAL);
    CHECK(fmp_receive(own, 1, NULL, 1, NULL) == FMP_EINVAL);
    CHECK(fmp_probe_local(0, 1, NULL) == FMP_EINVAL);
    CHECK(fmp_probe_network(own, -2, NULL) == FMP_EINVAL);
    CHECK(fmp_siblings(NULL, 1) == FMP_EINVAL);
    CHECK(pvm_errno == 0);
}

static void to_itself(int own)
{
    int i;

    for (i = 0; i < LENGTHS; i++)
        CHECK(fmp_send(own, i, sent, lengths[i]) == 0);
    CHECK(pvm_probe(-1, -1) == 0);
    for (i = LENGTHS - 1; i >= 0; i--)
        expect(own, i, lengths[i]);
}

static int handled;

/* A message handler of PVM: it may send, but not wait. */
static int handler(int mid)
{
    int byte;

    (void)mid;
    handled++;
    CHECK(fmp_receive(FMP_ANY, 800, &byte, 1, NULL) == FMP_EBUSY);
    CHECK(fmp_send(fmp_self(), 801, "h", 1) == 0);
    return 0;
}

static void in_a_handler(int own)
{
    char letter = 0;
    int id = pvm_addmhf(-1, 50, -1, handler);

    CHECK(id >= 0);
    CHECK(send_int(own, 50, 1) == 0);
    CHECK(fmp_receive(own, 801, &letter, 1, NULL) == 0 && letter == 'h' && handled == 1);
    CHECK(pvm_delmhf(id) == 0);
}

int main(void)
{
    int own = fmp_self(), siblings[2] = { 0, 7 }, other, i;
    pid_t process;

    CHECK(own > 0 && own == pvm_mytid() && fmp_self() == own);
    CHECK(fmp_parent() == FMP_ENOPARENT);
    CHECK(fmp_siblings(NULL, 0) == 1 && fmp_siblings(siblings, 2) == 1 && siblings[0] == own && siblings[1] == 7);
    CHECK(strlen(fmp_strerror(FMP_ETRUNC)) > 0 && strcmp(fmp_strerror(-99), fmp_strerror(1)) == 0);
    pvm_errno = 0;
    wrong_parameters(own);
    fill(1);
    to_itself(own);
    in_a_handler(own);
    fflush(stderr);
    process = fork();
    CHECK(process >= 0);
    if (process == 0)
        return child(own);
    CHECK(fmp_receive(FMP_ANY, 500, &other, sizeof other, NULL) == 0);
    send_all(other);
    fill(2);
    receive_all(other);
    fill(1);
    for (i = 0; i < 4 * LENGTHS; i++) {
        CHECK(fmp_send(other, 600, sent, lengths[i % LENGTHS]) == 0);
        expect(other, 601, lengths[i % LENGTHS]);
    }
    CHECK(status_of(process) == 0);
    /* The task has ended, and tids near it have never lived: messages to them are dropped. */
    for (i = 0; i < 3; i++) {
        CHECK(fmp_send(other + 1000 * i, 1, sent, 8) == 0);
        CHECK(fmp_send(other + 1000 * i, 1, sent, 100000) == 0);
    }
    CHECK(fmp_send(own + (9 << 18), 1, sent, 8) == 0);
    expect(other, 700, 100000);
    /* After pvm_exit the process enrolls again. */
    CHECK(pvm_exit() == 0);
    CHECK(fmp_self() > 0 && fmp_self() != own && fmp_self() == pvm_mytid());
    return 0;
}
