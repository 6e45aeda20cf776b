# inherita and inheritb: contexts pass on to children.
#@ runs inherit2
#@ needs $DEBIAN_PVM/bin/inherita
#@ fresh
$DEBIAN_PVM/bin/inherita inherit1
$DEBIAN_PVM/bin/inherita inherit3
$DEBIAN_PVM/bin/inheritb
$DEBIAN_PVM/bin/inherita
