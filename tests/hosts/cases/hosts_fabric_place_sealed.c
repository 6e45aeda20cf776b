/* The scenario of hosts_fabric_place, with encryption: a sender seals a copy, a receiver opens the body in its place. */
//@ ours-only D3: skip
//@ daemon-env PVM_FABRIC=tcp
//@ timeout 90
#define SEALED
#include "hosts_fabric_place.c"
