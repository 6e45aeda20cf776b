# NPpvm measures transfers and checks their contents; the script removes the measured numbers.
#@ needs $DEBIAN_PVM/bin/NPpvm
#@ fresh
run() {
    rm -f np.out
    NPpvm -u 20000 -n 3 "$@" > receiver.out 2>&1 &
    sleep 0.4
    NPpvm -h localhost -u 20000 -n 3 "$@" 2>&1 | sed -E 's/-->.*/--> numbers/'
    wait
    cat receiver.out
    awk '{print $1}' np.out
}
run
echo "---- integrity"
run -i
echo "---- streaming"
run -s
