/* Messages on a thread with a small stack. If the calls use too much of the stack, the case prints how much. */
//@ no-fabric libfabric needs more stack
#include "case.h"
#include <pthread.h>

#define STACK_BYTES (64 << 10)
#define NEED_BYTES_MAX (8 << 10)

static unsigned char stack[STACK_BYTES] __attribute__((aligned(4096)));
static int own, other;

/* Returns how much of the stack has been used. */
static int used(void)
{
    int byte = 0;
    while (byte < STACK_BYTES && stack[byte] == 0xa5)
        byte++;
    return STACK_BYTES - byte;
}

static void *nothing(void *unused)
{
    return unused;
}

static void round_trip(int to)
{
    int value = 7, got = 0;
    char long_one[9000];
    struct timeval none = {0, 0}, little = {0, 1000};
    (void)long_one;
    pvm_initsend(PvmDataDefault);
    pvm_pkint(&value, 1, 1);
    pvm_send(to, 1);
    pvm_recv(-1, 1);
    pvm_upkint(&got, 1, 1);
    pvm_psend(to, 2, &value, 1, PVM_INT);
    pvm_precv(-1, 2, &got, 1, PVM_INT, NULL, NULL, NULL);
    pvm_nrecv(-1, 3);
    pvm_probe(-1, 3);
    pvm_trecv(-1, 3, &none);
    pvm_trecv(-1, 3, &little);
}

static void *messages(void *unused)
{
    int turn;
    for (turn = 0; turn < 100; turn++)
        round_trip(own);
    for (turn = 0; turn < 100; turn++)
        round_trip(other);
    return unused;
}

static int run(void *(*what)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    memset(stack, 0xa5, sizeof stack);
    pthread_attr_init(&attributes);
    if (pthread_attr_setstack(&attributes, stack, sizeof stack) || pthread_create(&thread, &attributes, what, NULL))
        return -1;
    pthread_join(thread, NULL);
    return used();
}

/* Sends each message back. */
static int echo(void)
{
    for (;;) {
        int bytes, tag, tid, got;
        pvm_bufinfo(pvm_recv(-1, -1), &bytes, &tag, &tid);
        pvm_upkint(&got, 1, 1);
        if (tag == 9)
            break;
        if (tag == 2) {
            pvm_psend(tid, tag, &got, 1, PVM_INT);
            continue;
        }
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&got, 1, 1);
        pvm_send(tid, tag);
    }
    pvm_exit();
    return 0;
}

int main(int argc, char **argv)
{
    int base, with, i;
    case_begin();
    own = pvm_mytid();
    if (argc > 1)
        return echo();
    if (case_spawn("echo", 1, &other) != 1)
        return 1;
    /* The first message to a task of another host needs more. */
    round_trip(other);
    base = run(nothing);
    for (i = 0; i < 2; i++) {
        with = run(messages) - base;
        if (base > 0 && with > NEED_BYTES_MAX)
            printf("the calls needed %d bytes of stack\n", with);
        /* Here tasks of different hosts get a direct route. */
        messages(NULL);
    }
    printf("done\n");
    case_signal(other, 9);
    pvm_exit();
    return 0;
}
