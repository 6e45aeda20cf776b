/* Two tasks that both ask for a link, where nothing is encrypted. */
//@ ours-only D3: skip
//@ daemon-env PVM_TRUSTED_NET=1
//@ timeout 90
#include "hosts_left_both.c"
