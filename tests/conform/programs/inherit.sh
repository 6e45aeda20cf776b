# inherita and inheritb: children inherit contexts.
#@ runs inherit2
#@ needs $DEBIAN_PVM/bin/inherita
#@ fresh
$DEBIAN_PVM/bin/inherita inherit1
$DEBIAN_PVM/bin/inherita inherit3
$DEBIAN_PVM/bin/inheritb
$DEBIAN_PVM/bin/inherita
