/* As hosts_order_direct, with receivers that pace long messages from the first one on. */
//@ ours-only D3: skip
//@ daemon-env PVM_PACING=always
//@ timeout 60
#include "hosts_order_direct.c"
