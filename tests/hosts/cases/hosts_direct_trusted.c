/* Direct routes without encryption. */
//@ ours-only D3: skip
//@ daemon-env PVM_TRUSTED_NET=1
//@ timeout 60
#include "hosts_direct.c"
