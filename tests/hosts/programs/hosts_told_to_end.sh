# The daemon of the master is told to end, as when its computer is shut down. Another host is the master then, as all hosts
# say, and a task on another host goes on.
#@ fresh
#@ ours-only PVM 3.4.6 ends the machine: skip
#@ timeout 60
. "$CONFORM/functions"
daemons_on() {
    net=$("$PVM_RSH" "$1" readlink /proc/self/ns/net)
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/ns/net" 2> /dev/null)" = "$net" ] || continue
        ! grep -qx pvmd "$process/comm" 2> /dev/null || echo "${process#/proc/}"
    done
}
not_listed() {
    "$PVM_RSH" "$2" pvm conf > known && ! grep -q " $1 " known
}
ended() {
    ! "$PVM_RSH" "$1" pvm conf
}
echo "spawn -delta sleep 100" | "$PVM_RSH" charlie pvm | grep successful
left=
for host in alfa bravo; do
    echo "---- SIGTERM on $host"
    kill $(daemons_on $host)
    left="$left $host"
    for other in bravo charlie delta; do
        case $left in *$other*) continue ;; esac
        wait_for not_listed $host $other
        echo "$other says:"
        "$PVM_RSH" $other pvm conf -v | sed -E 's/ (deputy|council)$//'
    done
    wait_for ended $host
    "$PVM_RSH" charlie 'pvm ps -a' | grep -c sleep
done
echo halt | "$PVM_RSH" charlie "pvm > said 2>&1; echo status \$?"
