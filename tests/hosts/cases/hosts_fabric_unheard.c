/* Both hosts have a fabric, but nothing gets through from one to the other: each task's address is one of its own host. The
 * tasks give the link on the fabric up when they do not hear each other there, and get a direct link. */
//@ ours-only D3: skip
//@ hostfile * fabric=tcp;lo
//@ timeout 90
#include "fabric.h"

/* How long the two tasks talk at most, in seconds. A link on which nothing is heard is given up after some 4 s. */
#define TALK_SECONDS 30

int main(int argc, char **argv)
{
    int tid, count = 0;
    time_t end;
    (void)argv;
    case_begin();
    pvm_mytid();
    pvm_setopt(PvmRoute, PvmRouteDirect);
    if (argc > 1) {
        answer_until(PONG);
        pvm_exit();
        return 0;
    }
    tid = spawn_on("bravo", "child");
    for (end = time(NULL) + TALK_SECONDS; !is_linked(tid) && time(NULL) < end; count++) {
        say(tid, PING, count);
        if (case_receive(tid, PONG, PATIENCE) <= 0)
            break;
    }
    SHOW(is_linked(tid));
    SHOW(pvm_getopt(PvmFabricTasks));
    say(tid, PONG, 0);
    SHOW(case_receive(tid, PONG, PATIENCE) > 0);
    pvm_exit();
    return 0;
}
