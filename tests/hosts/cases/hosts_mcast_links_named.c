/* As hosts_mcast_links, but the hostfile names the way: then the daemons send, and tell their tasks so. */
//@ ours-only 2.9: skip
//@ no-fabric it counts what direct links do not carry
//@ daemon-env HPVM_ORDER=pairs
//@ hostfile * mcast=binomial
//@ timeout 90
#include "hosts_mcast_links.c"
