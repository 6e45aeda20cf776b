/* A child of fork() becomes a separate task, and does not disturb its parent. */
#include "check.h"

static int me, forked_child;

static void child_of(int parent_task, int tag)
{
    int tid = pvm_mytid();

    CHECK(tid > 0 && tid != parent_task);
    CHECK(pvm_parent() == PvmNoParent);
    CHECK(pvm_getsbuf() == 0 && pvm_getrbuf() == 0);
    CHECK(send_int(parent_task, tag, tid) == 0);
    CHECK(receive_int(parent_task, tag) == tag);
    CHECK(pvm_exit() == 0);
    exit(0);
}

static void answer(int tag)
{
    int tid = receive_int(-1, tag);

    CHECK(tid != me && pvm_pstat(tid) == 0);
    CHECK(send_int(tid, tag, tag) == 0);
}

/* A message handler that forks, inside a call of the library. */
static int forking_handler(int mid)
{
    int value;

    CHECK(mid > 0 && pvm_upkint(&value, 1, 1) == 0 && value == 50);
    forked_child = fork();
    if (forked_child == 0)
        child_of(me, 6);
    return 0;
}

/* A message handler that forks; the child returns into the library too. */
static int returning_handler(int mid)
{
    CHECK(mid > 0);
    forked_child = fork();
    return 0;
}

int main(void)
{
    pid_t child;

    me = pvm_mytid();
    CHECK(me > 0);
    CHECK(send_int(me, 1, 11) == 0);

    child = fork();
    if (child == 0)
        child_of(me, 2);
    answer(2);
    CHECK(status_of(child) == 0);
    CHECK(pvm_mytid() == me);

    /* A child that never calls the library. */
    child = fork();
    if (child == 0)
        _exit(0);
    CHECK(status_of(child) == 0);
    CHECK(receive_int(me, 1) == 11);

    /* A child that only calls pvm_exit: it is no task. */
    child = fork();
    if (child == 0)
        exit(pvm_exit() == 0 ? 0 : 1);
    CHECK(status_of(child) == 0);
    CHECK(pvm_mytid() == me && pvm_pstat(me) == 0);

    CHECK(pvm_addmhf(-1, 50, -1, forking_handler) >= 0);
    CHECK(send_int(me, 50, 50) == 0);
    CHECK(pvm_nrecv(-1, 77) == 0);
    CHECK(forked_child > 0);
    answer(6);
    CHECK(status_of(forked_child) == 0);

    CHECK(pvm_addmhf(-1, 51, -1, returning_handler) >= 0);
    forked_child = -1;
    CHECK(send_int(me, 51, 0) == 0);
    pvm_setopt(PvmAutoErr, 0);
    CHECK(pvm_nrecv(-1, 77) == (forked_child == 0 ? PvmSysErr : 0));
    CHECK(forked_child >= 0);
    if (forked_child == 0)
        child_of(me, 7);
    answer(7);
    CHECK(status_of(forked_child) == 0);

    /* Before its first call a process is no task yet, and neither is its child. */
    CHECK(pvm_exit() == 0);
    child = fork();
    if (child == 0)
        exit(pvm_mytid() > 0 ? 0 : 1);
    CHECK(status_of(child) == 0);
    CHECK(pvm_mytid() > 0);
    CHECK(pvm_exit() == 0);
    return 0;
}
