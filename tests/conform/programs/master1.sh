# master1 and its slaves: arrays of floats out, sums back.
#@ runs slave1
#@ needs $DEBIAN_PVM/bin/master1
$DEBIAN_PVM/bin/master1 | sort
