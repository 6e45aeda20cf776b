# fmaster1 and fspmd: Debian's Fortran programs contain the wrappers.
#@ runs fslave1
#@ needs $DEBIAN_PVM/bin/fmaster1
#@ fresh
echo 3 | $DEBIAN_PVM/bin/fmaster1 | sed -E 's/26[0-9]{4}/N/g' | sort
timeout 5 $DEBIAN_PVM/bin/fspmd | sed -E 's/26[0-9]{4}/N/g'
