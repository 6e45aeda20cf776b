//@ tasks: 3
//@ hosts: 3
//@ deadlock: 0 1 2
//@ says: pvm_barrier(all, 3): 2 of 3 have come; missing: {2} waits itself
/* A barrier over three hosts, and one member that waits for another. */
#include "barrier_member_waits.c"
