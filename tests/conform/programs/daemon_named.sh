# A daemon whose machine has its own id, which it reads from standard input; and a daemon that only prints its versions.
#@ nodaemon
. "$CONFORM/functions"
# The id must be in the pipe before the daemon starts, since the daemon does not wait for it.
mkfifo pipe
exec 3<> pipe
echo "PVM_VMID=mine" >&3
pvmd <&3 > said 2> errors &
wait_for_text said /
ls "$PVM_TMP" | grep -E '^pvm[dl]\.' | sed -E 's/\.[0-9]+/.UID/'
echo conf | PVM_VMID=mine pvm | sed -n 's/^pvmd already running.$/&/p'
(echo halt | PVM_VMID=mine pvm) > /dev/null 2>&1
wait
timeout 5 pvmd -t -n x > told 2>&1 < /dev/null
echo "status $?"
test -s told && echo "tells something"
