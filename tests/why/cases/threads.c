//@ tasks: 2
//@ deadlock: none
//@ says: it has 2 threads, and another may act
/* A thread waits, and another one of the same task may still send. */
#include "../fault.h"
#include <pthread.h>

static void *other(void *nothing)
{
    compute();
    return nothing;
}

int main(void)
{
    pthread_t thread;

    begin();
    if (pthread_create(&thread, NULL, other, NULL) != 0)
        return 1;
    await(1 - self, 1);
    return 0;
}
