/* With PVM_FABRIC_CLEAR=never, what a fabric carries cannot be read, though the network is called trusted. */
//@ ours-only D3: skip
//@ daemon-env PVM_FABRIC=tcp
//@ daemon-env PVM_TRUSTED_NET=1
//@ daemon-env PVM_FABRIC_CLEAR=never
//@ timeout 90
#include "hosts_fabric_clear.c"
