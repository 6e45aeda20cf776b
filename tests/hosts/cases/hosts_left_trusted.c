/* Tasks that end with many unreceived messages on their direct links, where nothing is encrypted.
 */
//@ ours-only D3: skip
//@ daemon-env PVM_TRUSTED_NET=1
//@ timeout 90
#include "hosts_left.c"
