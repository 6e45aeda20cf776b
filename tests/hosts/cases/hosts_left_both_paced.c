/* As hosts_left_both, with receivers that pace long messages from the first one on. */
//@ ours-only D3: skip
//@ daemon-env PVM_PACING=always
//@ timeout 90
//@ no-fabric it counts direct links
#include "hosts_left_both.c"
