# ps lists programs that have enrolled without being spawned, and other consoles; it lists its own console only with -x.
#@ needs $DEBIAN_PVM/bin/task0
#@ fresh
. "$CONFORM/functions"
$DEBIAN_PVM/bin/task0 service d > /dev/null 2>&1 &
wait_for sh -c '$DEBIAN_PVM/bin/gmbi service | grep -q service'
sleep 20 | pvm > /dev/null 2>&1 &
wait_for sh -c 'echo names | pvm | grep -q index=1'
for command in ps "ps -a" "ps -x" "ps -ax" "ps -al"; do
    echo "$command" | pvm
done | sed -E 's/ 4[0-9a-f]{4}/ TID/; s/ +[0-9]+( +[0-9]\/)/ PID\1/; s/^ +[^ ]+ +(TID|\(cons)/HOST \1/'
$DEBIAN_PVM/bin/task_end service 0 > /dev/null
