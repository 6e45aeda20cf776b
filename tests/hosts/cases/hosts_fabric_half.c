/* A long message in frames arrives by half, because its sender computes before the rest has room. A receive that waits goes
 * on with other messages, gets the rest when it comes, and the link stays.
 */
//@ ours-only D3: skip
//@ daemon-env PVM_FABRIC=tcp
//@ daemon-env PVM_TRUSTED_NET=1
//@ timeout 90
#include "fabric.h"

/* A body of this length is more than the credits of a link allow. */
#define LENGTH (500 << 10)
#define COUNT 3
#define ROUNDS 2

enum { BEGIN = PONG + 1, READY, BODY, OTHER };

static char body[LENGTH];

static void fill(int number)
{
    int i;
    for (i = 0; i < LENGTH; i++)
        body[i] = (char)(i * 7 + (i >> 9) + number);
}

static int is_right(int number)
{
    int i;
    for (i = 0; i < LENGTH; i++)
        if (body[i] != (char)(i * 7 + (i >> 9) + number))
            return 0;
    return 1;
}

/* Sends bodies when it is told to, and then does not call the library for a while. */
static void child(void)
{
    int parent = pvm_parent(), i, round;
    answer_until(BEGIN);
    for (round = 0; round < ROUNDS; round++) {
        pvm_recv(parent, READY);
        for (i = 0; i < COUNT; i++) {
            fill(i);
            pvm_psend(parent, BODY, body, LENGTH, PVM_BYTE);
            /* The first body of a link comes in frames; later ones may be read. */
            if (round == 0 && i == 0)
                sleep(4);
        }
        say(parent, OTHER, round);
        if (round == 1)
            usleep(20000);
    }
    pvm_recv(parent, READY);
}

int main(int argc, char **argv)
{
    int tid, i, round, right = 0, others = 0;
    (void)argv;
    tid = begin_with(child, argc);
    say(tid, BEGIN, 0);
    for (round = 0; round < ROUNDS; round++) {
        say(tid, READY, 0);
        for (i = 0; i < COUNT; i++) {
            memset(body, 0x5a, sizeof body);
            pvm_precv(tid, BODY, body, LENGTH, PVM_BYTE, NULL, NULL, NULL);
            right += is_right(i);
        }
        others += case_receive(tid, OTHER, PATIENCE) > 0;
    }
    printf("right: %d of %d, others: %d of %d\n", right, ROUNDS * COUNT, others, ROUNDS);
    printf("takes the fabric: %d\n", pvm_getopt(PvmFabricTasks));
    say(tid, READY, 0);
    pvm_exit();
    return 0;
}
