# hello.pvm spawns hello_other.
#@ runs hello_other
#@ needs $DEBIAN_PVM/bin/hello.pvm
#@ fresh
$DEBIAN_PVM/bin/hello.pvm
