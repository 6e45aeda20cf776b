/* As hosts_order_links, with links on a fabric. */
//@ ours-only D3: skip
//@ daemon-env PVM_FABRIC=tcp
//@ daemon-env HPVM_ORDER=hosts
//@ timeout 90
#define SENDS_ON_LINK(tid) (pvm_getopt(1006) > 0)
#include "hosts_order_links.c"
