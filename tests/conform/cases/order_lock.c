/* A task that holds a lock writes an entry to a log, without an answer, and releases the lock. One task keeps the lock,
 * and numbers those that get it; another one keeps the log, and receives the entries by their numbers. */
#include "order.h"

#define USERS 4
enum { LOCK = USERS, LOG, TASKS };
enum { ACQUIRE = 20, RELEASE, ENTRY };

static void keep_lock(void)
{
    int waiting[USERS + 1], count = 0, number = 0, tag, tid;
    while ((tag = order_next()) != STOP) {
        if (tag == ACQUIRE) {
            pvm_bufinfo(pvm_getrbuf(), NULL, NULL, &tid);
            waiting[count++] = tid;
            if (count > 1)
                continue;
        } else {
            count--;
            memmove(waiting, waiting + 1, count * sizeof *waiting);
        }
        if (count > 0)
            order_send(waiting[0], GO, number++);
    }
}

static void keep_log(int entries)
{
    int i, wrong = 0;
    for (i = 0; i < entries; i++) {
        pvm_recv(-1, ENTRY);
        wrong += order_value() != i;
    }
    order_send(pvm_parent(), ASK, wrong);
}

static void use(int *tids, int rounds)
{
    int r;
    for (r = 0; r < rounds; r++) {
        case_signal(tids[LOCK], ACQUIRE);
        pvm_recv(tids[LOCK], GO);
        order_send(tids[LOG], ENTRY, order_value());
        case_signal(tids[LOCK], RELEASE);
    }
}

int main(int argc, char **argv)
{
    int tids[TASKS], rounds = order_rounds(500), me;
    case_begin();
    if (argc > 1) {
        me = order_started(TASKS, tids, &rounds);
        if (me == LOCK)
            keep_lock();
        else if (me == LOG)
            keep_log(USERS * rounds);
        else
            use(tids, rounds);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    case_spawn_here("task", TASKS, tids);
    order_start(TASKS, tids, rounds);
    pvm_recv(tids[LOG], ASK);
    printf("entries: out of order: %d\n", order_value());
    order_send(tids[LOCK], STOP, 0);
    pvm_exit();
    return 0;
}
