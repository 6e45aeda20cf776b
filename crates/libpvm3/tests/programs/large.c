/* Tests long messages that are sent or received by one call each, and cut off if the receiver has less room. */
#include "check.h"

enum { BYTES = 8 << 20 };

static unsigned char *filled(int seed)
{
    unsigned char *data = malloc(BYTES);
    int i;

    CHECK(data != NULL);
    for (i = 0; i < BYTES; i++)
        data[i] = (unsigned char)(i * 7 + (i >> 9) + seed);
    return data;
}

static void send_all(int parent)
{
    unsigned char *data = filled(1);
    int round;

    for (round = 0; round < 4; round++) {
        CHECK(receive_int(parent, 1) == round);
        CHECK(pvm_psend(parent, 2, data, BYTES, PVM_BYTE) == 0);
        data[0] = 0; /* the sender may use the data again */
        data[0] = filled(1)[0];
    }
    CHECK(pvm_initsend(PvmDataInPlace) > 0);
    CHECK(pvm_pkbyte((char *)data, BYTES / 2, 1) == 0);
    CHECK(pvm_pkbyte((char *)data + BYTES / 2, BYTES / 2, 1) == 0);
    CHECK(pvm_send(parent, 3) == 0);
    exit(pvm_exit() == 0 ? 0 : 1);
}

int main(void)
{
    int me = pvm_mytid(), from, tag, length, round, child_task;
    unsigned char *expected = filled(1), *data = malloc(BYTES + 1);
    pid_t child = fork();

    CHECK(me > 0 && data != NULL);
    if (child == 0) {
        CHECK(send_int(me, 9, pvm_mytid()) == 0);
        send_all(me);
    }
    child_task = receive_int(-1, 9);
    for (round = 0; round < 4; round++) {
        int room = round == 3 ? BYTES / 4 : BYTES;

        memset(data, 0xee, BYTES + 1);
        CHECK(send_int(child_task, 1, round) == 0);
        if (round == 1)
            usleep(100000); /* the message arrives before the receiver waits */
        CHECK(pvm_precv(child_task, 2, data, room, PVM_BYTE, &from, &tag, &length) == 0);
        CHECK(from == child_task && tag == 2 && length == BYTES);
        CHECK(memcmp(data, expected, (size_t)room) == 0 && data[room] == 0xee);
    }
    CHECK(pvm_recv(child_task, 3) > 0);
    memset(data, 0, BYTES);
    CHECK(pvm_upkbyte((char *)data, BYTES, 1) == 0);
    CHECK(memcmp(data, expected, BYTES) == 0);
    CHECK(status_of(child) == 0);
    CHECK(pvm_exit() == 0);
    return 0;
}
