//@ tasks: 1
//@ deadlock: 0 1
//@ says: the end of the children whose output it collects: {1} waits itself
/* A parent that collects the output of a child leaves, and the child waits for the parent. */
#include "../fault.h"

int main(int count, char **words)
{
    int child;

    (void)count;
    checked(pvm_mytid());
    if (pvm_parent() > 0 && pvm_getopt(PvmOutputTid) == pvm_parent()) {
        checked(pvm_recv(pvm_parent(), 1));
        return 0;
    }
    checked(pvm_catchout(stderr));
    if (pvm_spawn(words[0], NULL, PvmTaskDefault, "", 1, &child) != 1)
        return 1;
    pvm_exit();
    return 0;
}
