/* pvm_catchout(NULL): later output of tasks whose output was collected is discarded, and pvm_exit waits for
 * none of them. */
#include "case.h"
#include <sys/time.h>

static int child(const char *role)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    usleep(200000); /* the parent has returned from its call by then */
    printf("early of %s\n", role);
    usleep(800000);
    printf("late of %s\n", role);
    return 0;
}

/* Receives all messages that arrive within this time. */
static void take_in(long microseconds)
{
    struct timeval limit;
    limit.tv_sec = microseconds / 1000000;
    limit.tv_usec = microseconds % 1000000;
    SHOW(pvm_trecv(-1, 77, &limit));
}

int main(int argc, char **argv)
{
    int first, second;
    case_begin();
    if (argc > 1)
        return child(argv[1]);
    pvm_mytid();
    SHOW(pvm_catchout(stdout));
    SHOW(case_spawn("first", 1, &first));
    take_in(500000);
    /* PVM prints errors of its own in pvm_exit after a catchout is switched off. */
    pvm_setopt(PvmAutoErr, 0);
    SHOW(pvm_catchout(NULL));
    SHOW(case_spawn("second", 1, &second));
    take_in(1500000);
    SHOW(pvm_exit());
    return 0;
}
