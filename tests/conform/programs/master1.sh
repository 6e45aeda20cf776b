# master1 and its slaves: arrays of floats out, sums back.
#@ runs slave1
#@ needs /usr/bin/master1
/usr/bin/master1 | sort
