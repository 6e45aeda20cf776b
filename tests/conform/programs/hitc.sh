# hitc: a Fortran job pool with blocking matrix inversions (statically linked Fortran wrappers).
#@ runs hitc_slave
#@ needs $DEBIAN_PVM/bin/hitc
#@ fresh
$DEBIAN_PVM/bin/hitc | sed -E 's/ +[0-9]{6,7}/ TID/' | sort
