/* As hosts_left_both, without encryption. */
//@ ours-only D3: skip
//@ daemon-env PVM_TRUSTED_NET=1
//@ timeout 90
//@ no-fabric it counts direct links
#include "hosts_left_both.c"
