/* A long message for which a pvm_precv waits is read over the fabric straight to its place: no processor of the receiver
 * copies it. On a trusted network, no processor of the sender does either: the sender learns that the receive waits.
 * A shorter one, which travels in frames, is copied once by its receiver.
 * Messages that came before the receive keep their turn. A packed message is not copied once more when it is sent there.
 */
//@ ours-only D3: skip
//@ daemon-env PVM_FABRIC=tcp
//@ daemon-env PVM_TRUSTED_NET=1
//@ timeout 90
#include "fabric.h"

#define PvmKibCopied 1002
#define LONGEST (5 << 20)
#define GUARD 64
#define ROUNDS 5

enum { BEGIN = PONG + 1, READY, BODY, SIGN, RESULT };
/* What the receiver is ready for, apart from the number of a length. */
enum { FRAMES = 50, ORDER = 100, PACKED, END };

static const int lengths[] = {600 << 10, 1 << 20, (1 << 20) + 1, 3 << 20, LONGEST};
#define LENGTHS ((int)(sizeof lengths / sizeof *lengths))
static const int shorter[] = {20000, 64 << 10, 100001, 256 << 10};
#define SHORTER ((int)(sizeof shorter / sizeof *shorter))
static char body[LONGEST + GUARD];

static char at(int place, int seed)
{
    return (char)(place * 31 + (place >> 8) + seed);
}

static void send_body(int peer, int bytes, int seed)
{
    int i;
    for (i = 0; i < bytes; i++)
        body[i] = at(i, seed);
    pvm_psend(peer, BODY, body, bytes, PVM_BYTE);
}

/* Receives a body. Returns whether it, or what is behind it, is wrong. */
static int receive_body(int from, int wanted, int seed)
{
    int i, tid, tag, bytes, wrong = 0;
    pvm_precv(from, BODY, body, sizeof body, PVM_BYTE, &tid, &tag, &bytes);
    for (i = 0; i < wanted; i++)
        wrong |= body[i] != at(i, seed);
    for (i = wanted; i < wanted + GUARD; i++)
        wrong |= body[i] != 0x5a;
    return wrong || tid != pvm_parent() || tag != BODY || bytes != wanted;
}

/* Packs a body, sends it twice, and changes the buffer. Returns whether sending has copied it. */
static int send_packed(int peer, int bytes, int seed)
{
    int i, before;
    for (i = 0; i < bytes; i++)
        body[i] = at(i, seed);
    pvm_initsend(PvmDataRaw);
    pvm_pkbyte(body, bytes, 1);
    before = pvm_getopt(PvmKibCopied);
    pvm_send(peer, BODY);
    pvm_send(peer, BODY);
    pvm_initsend(PvmDataRaw);
    pvm_pkbyte(body + 1, bytes, 1);
    return pvm_getopt(PvmKibCopied) - before >= 2 * bytes / 1024;
}

/* Receives a packed body. Returns whether it is wrong. */
static int receive_packed(int parent, int wanted, int seed)
{
    int i, bytes, wrong = 0, buffer = pvm_recv(parent, BODY);
    pvm_bufinfo(buffer, &bytes, NULL, NULL);
    if (bytes != wanted)
        return 1;
    pvm_upkbyte(body, bytes, 1);
    for (i = 0; i < wanted; i++)
        wrong |= body[i] != at(i, seed);
    return wrong;
}

static void child(void)
{
    int parent = pvm_parent(), copied = LENGTHS, twice = SHORTER, wrong = 0, misplaced = 0, round, i, before;
    answer_until(BEGIN);
    /* On a busy machine a body may come before its receive, but not each time. */
    for (round = 0; round < ROUNDS && copied > 0; round++) {
        copied = 0;
        for (i = 0; i < LENGTHS; i++) {
            memset(body, 0x5a, sizeof body);
            say(parent, READY, i);
            before = pvm_getopt(PvmKibCopied);
            wrong += receive_body(i % 2 ? -1 : parent, lengths[i], i);
            copied += pvm_getopt(PvmKibCopied) - before >= lengths[i] / 1024;
        }
    }
    for (round = 0; round < ROUNDS && twice > 0; round++) {
        twice = 0;
        for (i = 0; i < SHORTER; i++) {
            memset(body, 0x5a, sizeof body);
            say(parent, READY, FRAMES + i);
            before = pvm_getopt(PvmKibCopied);
            wrong += receive_body(i % 2 ? -1 : parent, shorter[i], i);
            twice += pvm_getopt(PvmKibCopied) - before >= 2 * (shorter[i] / 1024);
        }
    }
    say(parent, READY, ORDER);
    misplaced += case_receive(parent, SIGN, PATIENCE) <= 0;
    for (i = 0; i < 2; i++) {
        memset(body, 0x5a, sizeof body);
        misplaced += receive_body(-1, LONGEST, 10 + i);
    }
    for (round = 0; round < 3; round++) {
        say(parent, READY, PACKED);
        for (i = 0; i < 2; i++)
            wrong += receive_packed(parent, LONGEST - round, 20 + round);
    }
    say(parent, READY, END);
    pvm_initsend(PvmDataRaw);
    pvm_pkint(&wrong, 1, 1);
    pvm_pkint(&copied, 1, 1);
    pvm_pkint(&twice, 1, 1);
    pvm_pkint(&misplaced, 1, 1);
    pvm_send(parent, RESULT);
}

/* Sends the bodies for which the receiver is ready. Returns how many were sent without a copy. `copied`: how many packed ones
 * were copied. */
static int serve(int peer, int *copied)
{
    int ready, before, lent = 0, packed = 0;
    while (case_receive(peer, READY, 2 * PATIENCE) > 0) {
        pvm_upkint(&ready, 1, 1);
        if (ready == END)
            break;
        if (ready == PACKED) {
            *copied += send_packed(peer, LONGEST - packed, 20 + packed);
            packed++;
            continue;
        }
        /* The receiver waits by then. */
        usleep(20000);
        if (ready < LENGTHS) {
            before = pvm_getopt(PvmKibCopied);
            send_body(peer, lengths[ready], ready);
            lent += pvm_getopt(PvmKibCopied) - before < lengths[ready] / 1024;
            continue;
        }
        if (ready < FRAMES + SHORTER) {
            send_body(peer, shorter[ready - FRAMES], ready - FRAMES);
            continue;
        }
        send_body(peer, LONGEST, 10);
        say(peer, SIGN, 0);
        usleep(20000);
        send_body(peer, LONGEST, 11);
    }
    return lent;
}

int main(int argc, char **argv)
{
    int tid, lent, copied = 0, words[4];
    (void)argv;
    tid = begin_with(child, argc);
    say(tid, BEGIN, 0);
    lent = serve(tid, &copied);
    /* On a trusted network, those for which the receive names its sender. */
    printf("sent without a copy: %s\n", lent >= (LENGTHS + 1) / 2 ? "yes" : lent ? "some" : "no");
#ifndef SEALED
    printf("packed messages that were copied again: %d\n", copied);
#endif
    SHOW(case_receive(tid, RESULT, PATIENCE) > 0);
    pvm_upkint(words, 4, 1);
    printf("wrong: %d, copied by a processor: %d, in frames, copied twice: %d, out of order: %d\n", words[0], words[1],
           words[2], words[3]);
    pvm_exit();
    return 0;
}
