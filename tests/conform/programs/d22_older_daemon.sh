# D22: if the same user runs a daemon of PVM 3.4.6, all programs report this at once and do not touch that daemon; with
# another PVM_VMID they use a separate machine.
#@ nodaemon
#@ ours-only D22: skip
. "$CONFORM/functions"
library=$(find "$DEBIAN_PVM/lib" -name libpvm3.so.3)
theirs() {
    exec env LD_LIBRARY_PATH="${library%/*}" PVM_ROOT="$DEBIAN_PVM/lib/pvm3" PVM_ALLOW_ROOT=1 "$DEBIAN_PVM/bin/$1"
}
theirs pvmd > said 2> errors < /dev/null &
old=$!
wait_for_text said /
attempt() {
    name=$1
    shift
    timeout 5 "$@" > told 2>&1 < /dev/null
    echo "$name: status $?"
    sed "s/pid *$old/pid OLD/; s/pid[0-9][0-9]*/pidN/; s/^.*PVM 3/PVM 3/" told
}
attempt console pvm
attempt conf pvm conf
attempt run pvm run true
attempt daemon pvmd
attempt program "$DEBIAN_PVM/bin/hello.pvm"
theirs pvm < /dev/null | sed -n 1p
(echo id; echo halt) | PVM_VMID=other pvm | sed -n 1,2p
echo conf | theirs pvm | grep "1 host"
end_daemon $old > ended 2>&1
