/* A task is killed while it sends on a fabric. */
//@ ours-only D3: skip
//@ daemon-env PVM_FABRIC=tcp
//@ timeout 120
#include "hosts_killed_sender.c"
