/* Signals arrive while threads acquire and release the lock of the library: each call from a handler succeeds
 * or is refused, and there is no deadlock. Needs no daemon. */
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#define THREADS 3
#define SECONDS 2

static volatile sig_atomic_t handled;
static volatile int stop;
static long calls[THREADS];

static void call(int number)
{
    int saved = errno;

    (void)number;
    pvm_getopt(PvmRoute);
    handled++;
    errno = saved;
}

static void *call_often(void *count)
{
    while (!stop) {
        pvm_getopt(PvmRoute);
        ++*(long *)count;
    }
    return NULL;
}

int main(void)
{
    struct timespec pause = { 0, 20000 };
    pthread_t threads[THREADS];
    time_t end = time(NULL) + SECONDS;
    int i;

    pvm_setopt(PvmAutoErr, 0);
    signal(SIGUSR1, call);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, call_often, &calls[i]) == 0);
    while (time(NULL) < end) {
        for (i = 0; i < THREADS; i++)
            CHECK(pthread_kill(threads[i], SIGUSR1) == 0);
        nanosleep(&pause, NULL);
    }
    stop = 1;
    for (i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(calls[i] > 0);
    }
    CHECK(handled > 0);
    return 0;
}
