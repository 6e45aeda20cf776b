# pvmd started by hand: its output, its files, its end.
#@ nodaemon
. "$CONFORM/functions"
uid=$(id -u)
pvmd > said 2> errors &
first=$!
wait_for_text said /
echo "lines: $(wc -l < said)"
test "$(cat said)" = "$(cat "$PVM_TMP/pvmd.$uid")" && echo "the file says the same"
test -S "$(cat said)" && echo "it is a socket"
stat -c %a "$PVM_TMP/pvmd.$uid" "$PVM_TMP/pvml.$uid"
end_daemon $first
echo "ended"
socket=$(cat said)
rm said
test -e "$PVM_TMP/pvmd.$uid" || echo "the file is gone"
test -e "$socket" || echo "the socket is gone"
PVM_VMID=other pvmd > said 2>&1 &
first=$!
wait_for_text said /
ls "$PVM_TMP" | grep 'pvmd\.'
echo conf | PVM_VMID=other pvm | tail -n +3 | head -3
end_daemon $first
