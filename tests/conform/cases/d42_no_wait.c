/* D42: the first direct send does not wait until the receiver calls the library. */
//@ ours-only D42: skip
#include "case.h"

int main(int argc, char **argv)
{
    struct timeval before, after;
    int tid;
    case_begin();
    if (argc > 1) {
        int parent = pvm_parent();
        case_signal(parent, 1);
        sleep(2);
        pvm_recv(parent, 2);
        case_signal(parent, 3);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    pvm_setopt(PvmRoute, PvmRouteDirect);
    SHOW(case_spawn("child", 1, &tid));
    SHOW(case_receive(tid, 1, 5) > 0);
    gettimeofday(&before, NULL);
    case_signal(tid, 2);
    gettimeofday(&after, NULL);
    SHOW((after.tv_sec - before.tv_sec) * 1000000 + after.tv_usec - before.tv_usec < 500000);
    SHOW(case_receive(tid, 3, 5) > 0);
    pvm_exit();
    return 0;
}
