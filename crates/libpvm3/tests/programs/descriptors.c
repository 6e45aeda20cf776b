/* Tests select() on the descriptor of pvm_getfds: messages through shared memory make it readable too. */
#include "check.h"
#include <sys/select.h>

/* Returns whether the descriptor becomes readable within this number of milliseconds. */
static int readable(int descriptor, int milliseconds)
{
    struct timeval limit = { milliseconds / 1000, milliseconds % 1000 * 1000 };
    fd_set set;

    FD_ZERO(&set);
    FD_SET(descriptor, &set);
    return select(descriptor + 1, &set, NULL, NULL, &limit) == 1;
}

static void talk(int parent)
{
    int i;

    for (i = 0; i < 20; i++) {
        if (i % 5 == 0)
            usleep(50000);
        CHECK(send_int(parent, 3, i) == 0);
    }
    exit(pvm_exit() == 0 ? 0 : 1);
}

int main(void)
{
    int me = pvm_mytid(), *list, descriptor, got = 0, tries, value;
    pid_t child;

    CHECK(me > 0);
    CHECK(pvm_getfds(&list) == 1);
    descriptor = list[0];
    CHECK(pvm_getfds(&list) == 1 && list[0] == descriptor);
    CHECK(!readable(descriptor, 0));
    child = fork();
    if (child == 0)
        talk(me);
    for (tries = 0; got < 20 && tries < 200; tries++) {
        CHECK(readable(descriptor, 5000));
        while (pvm_nrecv(-1, 3) > 0) {
            CHECK(pvm_upkint(&value, 1, 1) == 0 && value == got);
            got++;
        }
    }
    CHECK(got == 20);
    CHECK(status_of(child) == 0);

    /* A message from the task to itself, then a notify from the daemon. */
    CHECK(send_int(me, 4, 1) == 0);
    CHECK(pvm_recv(me, 4) > 0);
    while (readable(descriptor, 50))
        CHECK(pvm_nrecv(-1, 99) == 0);
    child = 0x40000 + 77777;
    CHECK(pvm_notify(PvmTaskExit, 5, 1, &child) == 0);
    CHECK(pvm_nrecv(-1, 5) > 0 || (readable(descriptor, 5000) && pvm_nrecv(-1, 5) > 0));
    while (readable(descriptor, 50))
        CHECK(pvm_nrecv(-1, 99) == 0);
    CHECK(!readable(descriptor, 100));
    CHECK(pvm_exit() == 0);
    return 0;
}
