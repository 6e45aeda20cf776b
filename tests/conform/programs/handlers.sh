# mhf_server and mhf_tickle: messages cause a server to load, call and delete message handlers.
#@ needs $DEBIAN_PVM/bin/mhf_server
#@ fresh
. "$CONFORM/functions"
$DEBIAN_PVM/bin/mhf_server > server.out 2>&1 &
wait_for sh -c '$DEBIAN_PVM/bin/gmbi mhf_server | grep -q mhf_server'
# Load handler 1 for tag 50 in context 7 and call it; load another one for tag 51 in any context; end. A
# person types slower than messages travel, and a handler must exist before its message.
(
    printf '%s\n' 1 50 7 1
    sleep 0.2
    printf '%s\n' 4 50 7 1 'a first message'
    sleep 0.2
    printf '%s\n' 1 51 -1 6
    sleep 0.2
    printf '%s\n' 4 51 8 6 4711
    sleep 0.2
    echo 9
) | $DEBIAN_PVM/bin/mhf_tickle | sed -E "s/= 26[0-9]{4},/= N,/"
wait
# The table of handlers is for debugging only.
grep -E 'string_catcher|int_catcher|HIT|machine|mailbox|rejoin' server.out
