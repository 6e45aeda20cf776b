/* As hosts_mcast_routes, without encryption. */
//@ ours-only 2.9: skip
//@ daemon-env PVM_TRUSTED_NET=1
//@ timeout 90
#include "hosts_mcast_routes.c"
