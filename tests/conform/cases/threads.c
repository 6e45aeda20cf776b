/* Calls from changing threads, and two threads that wait at once (2.0: threads). */
//@ ours-only 2.0: skip
#include "case.h"
#include <pthread.h>

static int first_value, second_value;

static void *wait_first(void *unused)
{
    first_value = pvm_recv(-1, 1) > 0;
    return NULL;
}

static void *wait_second(void *unused)
{
    second_value = pvm_recv(-1, 2) > 0;
    return NULL;
}

static void *call(void *unused)
{
    int i;
    for (i = 0; i < 200; i++) {
        pvm_psend(pvm_mytid(), 5, &i, 1, PVM_INT); /* one call, since all threads share the send buffer */
        pvm_nrecv(-1, 6);
        if (i % 50 == 0)
            pvm_config(NULL, NULL, NULL);
    }
    return NULL;
}

int main(void)
{
    pthread_t first, second, callers[4];
    int i, received = 0;
    case_begin();
    pthread_create(&first, NULL, wait_first, NULL);
    pthread_create(&second, NULL, wait_second, NULL);
    usleep(200000);
    case_signal(pvm_mytid(), 2);
    pthread_join(second, NULL);
    SHOW(second_value);
    case_signal(pvm_mytid(), 1);
    pthread_join(first, NULL);
    SHOW(first_value);
    for (i = 0; i < 4; i++)
        pthread_create(callers + i, NULL, call, NULL);
    for (i = 0; i < 4; i++)
        pthread_join(callers[i], NULL);
    while (case_receive(-1, 5, 0.5) > 0)
        received++;
    SHOW(received);
    pvm_exit();
    return 0;
}
