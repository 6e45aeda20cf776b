/* As hosts_crossing, without encryption. */
//@ ours-only D3: skip
//@ daemon-env PVM_TRUSTED_NET=1
//@ timeout 120
#include "hosts_crossing.c"
