/* As order_times, but a message counts as sent as soon as pvm_send returns. On PVM 3.4.6 it may wait in the sender's
 * socket, and later messages of other senders overtake it. */
//@ ours-only 2.2: skip
#define SENT_WHEN_SENT 1
#include "order_times.c"
