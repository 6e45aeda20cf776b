# A console on a slave halts the machine: all daemons and tasks end, and their files are removed.
#@ fresh
#@ differs 4.1: status 143 => status 0
. "$CONFORM/functions"
for host in alfa bravo charlie delta; do
    echo "spawn -$host sleep 100" | "$PVM_RSH" $host pvm | sed -n 's/^1 successful/&/p'
done
echo halt | "$PVM_RSH" charlie "pvm > said 2>&1; echo status \$?"
gone() {
    for host in alfa bravo charlie delta; do
        "$PVM_RSH" $host 'ls $PVM_TMP' | grep -v pvml && return 1
    done
    true
}
wait_for gone && echo "no files but logs"
quiet() {
    for entry in /proc/[0-9]*/comm; do
        read -r name < "$entry" || continue
        case $name in pvmd* | sleep) grep -q 'sleep.100\|pvmd' "${entry%comm}cmdline" && return 1 ;; esac
    done 2> /dev/null
    true
}
wait_for quiet && echo "no processes"
for host in bravo charlie delta; do
    "$PVM_RSH" $host 'ls $PVM_TMP'
done | sed -E 's/pvml\.[0-9]+/pvml/'
