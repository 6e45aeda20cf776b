/* Calls from many threads, some of which wait all the time. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 6, ROUNDS = 400, LAST = 1000 };

static int me;

static void *wait_long(void *tag)
{
    CHECK(pvm_recv(-1, (int)(long)tag) > 0);
    return NULL;
}

static void *pass_on(void *argument)
{
    int tag = (int)(long)argument, round, from, found, length;

    for (round = 0; round < ROUNDS; round++) {
        int out = round * tag, in = -1;

        CHECK(pvm_psend(me, tag, &out, 1, PVM_INT) == 0);
        CHECK(pvm_precv(-1, tag, &in, 1, PVM_INT, &from, &found, &length) == 0);
        CHECK(in == out && from == me && found == tag && length == sizeof in);
        if (round % 100 == 0)
            CHECK(pvm_config(NULL, NULL, NULL) == 0);
    }
    return NULL;
}

static void *wait_shortly(void *tag)
{
    struct timeval limit = { 0, 300000 };

    CHECK(pvm_trecv(-1, (int)(long)tag, &limit) == 0);
    return NULL;
}

int main(void)
{
    pthread_t waiting[2], working[THREADS], limited;
    long i;

    me = pvm_mytid();
    CHECK(me > 0);
    CHECK(pthread_create(&waiting[0], NULL, wait_long, (void *)(long)LAST) == 0);
    CHECK(pthread_create(&waiting[1], NULL, wait_long, (void *)(long)(LAST + 1)) == 0);
    CHECK(pthread_create(&limited, NULL, wait_shortly, (void *)(long)(LAST + 2)) == 0);
    usleep(50000);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&working[i], NULL, pass_on, (void *)(i + 1)) == 0);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(working[i], NULL) == 0);
    CHECK(pthread_join(limited, NULL) == 0);
    /* Both threads sleep by now: one on the descriptors, the other until the first one wakes it. */
    usleep(50000);
    CHECK(pvm_psend(me, LAST + 1, &me, 1, PVM_INT) == 0);
    CHECK(pthread_join(waiting[1], NULL) == 0);
    CHECK(pvm_psend(me, LAST, &me, 1, PVM_INT) == 0);
    CHECK(pthread_join(waiting[0], NULL) == 0);
    CHECK(pvm_exit() == 0);
    return 0;
}
