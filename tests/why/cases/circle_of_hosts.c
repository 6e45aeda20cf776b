//@ tasks: 3
//@ hosts: 3
//@ deadlock: 0 1 2
//@ says: pvm_recv({1}, tag 8): {1} waits itself; 2 unread messages from {1}: tag 7
//@ says: a circle of waits: {0} -> {1} -> {2} -> {0}.
/* Three on three hosts, whose messages have other tags than are waited for. */
#include "../fault.h"

int main(void)
{
    begin();
    tell((self + 2) % 3, 7);
    tell((self + 2) % 3, 7);
    await((self + 1) % 3, 8);
    return 0;
}
