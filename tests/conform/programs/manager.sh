# srm.pvm: a resource manager answers in place of the daemon.
#@ needs $DEBIAN_PVM/bin/srm.pvm
#@ fresh
. "$CONFORM/functions"
$DEBIAN_PVM/bin/srm.pvm > manager.out 2>&1 &
wait_for sh -c 'echo names | pvm | grep -q PVM_RM'
$DEBIAN_PVM/bin/hello.pvm
$DEBIAN_PVM/bin/master1 | sort
