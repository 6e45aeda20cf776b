//@ tasks: 2
//@ deadlock: 0 1
//@ needs: stacks
//@ says: line_of_program.c:16 (wait_for_neighbour): pvm_recv({1}, tag 3): {1} waits itself
//@ says: line_of_program.c:16 (wait_for_neighbour): pvm_recv({0}, tag 3): {0} waits itself
/* The waits are deep in the program, and the report names their line. */
#include "../fault.h"

static int __attribute__((noinline)) wait_for_neighbour(int depth)
{
    char pad[64];

    pad[depth] = (char)depth;
    if (depth > 0)
        return wait_for_neighbour(depth - 1) + pad[depth];
    return pvm_recv(tid_of[1 - self], 3) + pad[depth];
}

int main(void)
{
    begin();
    return wait_for_neighbour(20);
}
