# srm.pvm: a resource manager answers for the daemon.
#@ needs /usr/bin/srm.pvm
#@ fresh
. "$CONFORM/functions"
/usr/bin/srm.pvm > manager.out 2>&1 &
wait_for sh -c 'echo names | pvm | grep -q PVM_RM'
/usr/bin/hello.pvm
/usr/bin/master1 | sort
