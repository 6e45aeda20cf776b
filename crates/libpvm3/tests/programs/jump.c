/* Tests programs that limit a wait by a signal: the signal handler leaves the wait by siglongjmp. */
#include "check.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf place;

static void jump(int number)
{
    (void)number;
    siglongjmp(place, 1);
}

static void in_time(long microseconds)
{
    struct itimerval once = { { 0, 0 }, { microseconds / 1000000, microseconds % 1000000 } };
    CHECK(setitimer(ITIMER_REAL, &once, NULL) == 0);
}

static void wait_by_recv(void)
{
    pvm_recv(-1, 99);
}

static void wait_by_precv(void)
{
    int value;
    pvm_precv(-1, 99, &value, 1, PVM_INT, NULL, NULL, NULL);
}

static void wait_by_trecv(void)
{
    struct timeval limit = { 100, 0 };
    pvm_trecv(-1, 99, &limit);
}

static void wait_by_barrier(void)
{
    pvm_barrier("two", 2);
}

/* Checks that the library still works after a jump out of a wait. */
static void jump_out(void (*wait)(void), long microseconds)
{
    struct timeval little = { 0, 1000 };
    int own = pvm_mytid(), value = 7, got = 0, turn;

    if (sigsetjmp(place, 1) == 0) {
        in_time(microseconds);
        wait();
        CHECK(0);
    }
    for (turn = 0; turn < 2; turn++) {
        CHECK(send_int(own, 1, 5) == 0);
        CHECK(receive_int(own, 1) == 5);
        CHECK(pvm_trecv(-1, 98, &little) == 0);
        CHECK(pvm_psend(own, 2, &value, 1, PVM_INT) == 0);
        CHECK(pvm_precv(-1, 2, &got, 1, PVM_INT, NULL, NULL, NULL) == 0 && got == 7);
        CHECK(pvm_nrecv(-1, -1) == 0);
        CHECK(pvm_pstat(own) == 0);
    }
}

static void *receives(void *result)
{
    *(int *)result = receive_int(-1, 3);
    return NULL;
}

/* This thread sleeps on the descriptors, another thread waits for it, and this thread jumps out of its wait. */
static void jump_away_from_another(void)
{
    pthread_t thread;
    sigset_t alarms;
    int got = 0;

    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    if (sigsetjmp(place, 1) == 0) {
        in_time(300000);
        CHECK(pthread_sigmask(SIG_BLOCK, &alarms, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, receives, &got) == 0);
        CHECK(pthread_sigmask(SIG_UNBLOCK, &alarms, NULL) == 0);
        pvm_recv(-1, 99);
        CHECK(0);
    }
    CHECK(send_int(pvm_mytid(), 3, 8) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && got == 8);
}

static volatile sig_atomic_t heard;

/* A handler that calls pvm_trecv and waits, while the code that it has interrupted sleeps in the library. */
static void receive_in_handler(int number)
{
    struct timeval little = { 0, 50000 };
    (void)number;
    if (pvm_trecv(-1, 97, &little) == 0)
        heard = 1;
    send_int(pvm_mytid(), 4, 6);
}

int main(void)
{
    int turn;

    CHECK(pvm_mytid() > 0);
    CHECK(pvm_joingroup("two") == 0);
    signal(SIGALRM, jump);
    for (turn = 0; turn < 3; turn++) {
        jump_out(wait_by_recv, 100000);
        jump_out(wait_by_precv, 100000);
        jump_out(wait_by_trecv, 100000);
    }
    jump_away_from_another();
    jump_out(wait_by_barrier, 100000);

    signal(SIGALRM, receive_in_handler);
    in_time(100000);
    CHECK(receive_int(-1, 4) == 6);
    CHECK(heard == 1);
    CHECK(pvm_exit() == 0);
    return 0;
}
