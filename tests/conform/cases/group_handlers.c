/* Calls of groups run message handlers, even those that need not wait; but not what the list of a frozen group answers. */
//@ fresh
#include "case.h"

static int ran;

static int note(int message)
{
    ran = 1;
    return 0;
}

/* Repeats a call until it has run the handler. */
#define RUNS(call)                                                                                 \
    do {                                                                                           \
        int turn_;                                                                                 \
        ran = 0;                                                                                   \
        case_signal(tid, 1);                                                                       \
        for (turn_ = 0; turn_ < 1000 && !ran; turn_++) {                                           \
            usleep(5000);                                                                          \
            call;                                                                                  \
        }                                                                                          \
        printf("%s runs the handler: %d\n", #call, ran);                                           \
    } while (0)

/* Sets `result` to whether a call runs the handler of a message that comes while the call is repeated. On a busy host the message
   may come later; so this takes five messages, one after another. */
#define TRY(call, result)                                                                          \
    do {                                                                                           \
        int round_, turn_;                                                                         \
        (result) = 0;                                                                              \
        for (round_ = 0; round_ < 5 && !(result); round_++) {                                      \
            ran = 0;                                                                               \
            case_signal(tid, 1);                                                                   \
            for (turn_ = 0; turn_ < 20 && !ran; turn_++) {                                         \
                usleep(5000);                                                                      \
                call;                                                                              \
            }                                                                                      \
            (result) = ran && turn_ > 0;                                                           \
            while (!ran)                                                                           \
                pvm_probe(-1, 4711);                                                               \
        }                                                                                          \
    } while (0)

/* Prints whether a call runs the handler. */
#define LEAVES(call)                                                                               \
    do {                                                                                           \
        int result_;                                                                               \
        TRY(call, result_);                                                                        \
        printf("%s of a frozen group runs the handler: %d\n", #call, result_);                     \
    } while (0)

/* Waits until this task has the list of the frozen group: with PVM 3.4.6 it comes as a message, some time after the call. */
static void await_list(int tid)
{
    int asked = 1;
    while (asked)
        TRY(pvm_gsize("alone"), asked);
}

static void child(void)
{
    for (;;) {
        pvm_recv(pvm_parent(), 1);
        /* The parent's send would take in an answer that comes while it lasts. */
        usleep(20000);
        case_signal(pvm_parent(), 2);
    }
}

int main(int argc, char **argv)
{
    int tid;
    case_begin();
    if (argc > 1)
        child();
    pvm_setopt(PvmAutoErr, 0);
    pvm_joingroup("alone");
    case_spawn("child", 1, &tid);
    pvm_addmhf(-1, 2, pvm_getcontext(), note);
    RUNS(pvm_gsize("alone"));
    RUNS(pvm_gettid("alone", 0));
    RUNS(pvm_getinst("alone", pvm_mytid()));
    RUNS(pvm_barrier("alone", 1));
    pvm_initsend(PvmDataDefault);
    RUNS(pvm_bcast("alone", 3));
    RUNS(pvm_gsize("nobody"));
    printf("frozen: %d\n", pvm_freezegroup("alone", 1));
    RUNS(pvm_barrier("alone", 1));
    await_list(tid);
    LEAVES(pvm_gsize("alone"));
    LEAVES(pvm_gettid("alone", 0));
    LEAVES(pvm_gettid("alone", 1));
    LEAVES(pvm_getinst("alone", pvm_mytid()));
    LEAVES(pvm_getinst("alone", tid));
    LEAVES(pvm_getinst("alone", -1));
    LEAVES(pvm_bcast("alone", 3));
    pvm_kill(tid);
    pvm_lvgroup("alone");
    pvm_exit();
    return 0;
}
