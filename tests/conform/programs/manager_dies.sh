# srm.pvm, which the daemon has started, is the resource manager; after it is killed, the daemon serves the requests
# itself again. On PVM 3.4 all requests wait for the dead manager for ever.
#@ needs $DEBIAN_PVM/bin/srm.pvm
#@ ours-only 2.12: hangs
#@ timeout 12
#@ daemon-env PVM_RM=srm.pvm
#@ hostfile * ep=$DEBIAN_PVM/bin
. "$CONFORM/functions"
managed() {
    echo names | pvm | grep PVM_RM
}
wait_for sh -c 'echo names | pvm | grep -q PVM_RM'
managed
"$DEBIAN_PVM/bin/hello.pvm" | sed "s/from [^ ]*$/from HOST/"
"$DEBIAN_PVM/bin/master1" | sort
srm=$(echo "ps -al" | pvm | awk '/srm.pvm/ {print $4}')
kill -9 "$srm"
wait_for sh -c '! echo names | pvm | grep -q PVM_RM'
managed || echo "no manager"
"$DEBIAN_PVM/bin/hello.pvm" | sed "s/from [^ ]*$/from HOST/"
"$DEBIAN_PVM/bin/master1" | sort
