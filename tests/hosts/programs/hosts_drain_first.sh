# The host of the master is drained by a command on another host, and by one on itself, without tasks and with one. Another
# host is the master then, as all hosts say, and the drained host can come back.
#@ fresh
#@ ours-only PVM 3.4.6 has no drain: skip
#@ timeout 60
. "$CONFORM/functions"
# What hosts say when they know that one has left.
tables() {
    left=$1
    shift
    for host; do
        wait_for not_listed "$left" "$host"
        wait_for knows_deputy "$host"
        echo "$host says:"
        # Either of the two others may be the deputy.
        "$PVM_RSH" "$host" pvm conf -v | sed -E 's/ (deputy|council)$/ votes/'
    done
}
not_listed() {
    "$PVM_RSH" "$2" pvm conf > known && ! grep -q " $1 " known
}
knows_deputy() {
    "$PVM_RSH" "$1" pvm conf -v > known && grep -q " deputy$" known
}
ended() {
    ! "$PVM_RSH" "$1" pvm conf
}
drain() {
    on=$1
    shift
    echo "---- pvm drain $* on $on"
    "$PVM_RSH" "$on" "pvm drain $* 2>&1; echo status \$?"
}
drain charlie alfa
tables alfa bravo charlie delta
wait_for ended alfa
"$PVM_RSH" delta pvm add alfa
drain bravo bravo
tables bravo alfa charlie delta
wait_for ended bravo
"$PVM_RSH" delta pvm add bravo
echo "spawn -charlie sleep 100" | "$PVM_RSH" delta pvm | grep successful
drain charlie --timeout 1 charlie
tables charlie alfa bravo delta
echo halt | "$PVM_RSH" alfa "pvm > said 2>&1; echo status \$?"
