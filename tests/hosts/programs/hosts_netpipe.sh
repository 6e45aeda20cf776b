# Debian's NPpvm between two hosts; the script removes the measured numbers.
#@ needs $DEBIAN_PVM/bin/NPpvm
#@ timeout 60
run() {
    rm -f np.out
    "$PVM_RSH" charlie "NPpvm -u 20000 -n 3 $*" > receiver.out 2>&1 &
    sleep 0.5
    NPpvm -h localhost -u 20000 -n 3 "$@" 2>&1 | sed -E 's/-->.*/--> numbers/'
    wait
    cat receiver.out
    awk '{print $1}' np.out
}
run
echo "---- integrity"
run -i
