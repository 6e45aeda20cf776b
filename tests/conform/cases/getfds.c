/* pvm_getfds: descriptors that become readable when a message arrives. */
#include "case.h"
#include <poll.h>

int main(int argc, char **argv)
{
    int *fds = NULL, count, child, i, ready;
    struct pollfd list[64];
    case_begin();
    if (argc > 1) {
        pvm_recv(pvm_parent(), 1);
        usleep(100000);
        case_signal(pvm_parent(), 2);
        pvm_exit();
        return 0;
    }
    pvm_mytid();
    SHOW(pvm_getfds(&fds) > 0);
    SHOW(case_spawn("child", 1, &child));
    case_signal(child, 1);
    while (pvm_nrecv(-1, 99) > 0)
        ;
    do {
        count = pvm_getfds(&fds);
        for (i = 0; i < count && i < 64; i++)
            list[i] = (struct pollfd){fds[i], POLLIN, 0};
        ready = poll(list, count, 5000);
        if (ready <= 0) {
            printf("nothing became readable\n");
            break;
        }
    } while (pvm_probe(child, 2) == 0);
    SHOW(ready > 0);
    SHOW(pvm_nrecv(child, 2) > 0);
    pvm_exit();
    return 0;
}
