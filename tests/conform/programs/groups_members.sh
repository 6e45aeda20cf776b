# tst, tjl, tjf, joinleave: many groups, joined and left many times.
#@ needs $DEBIAN_PVM/bin/tst
#@ fresh
$DEBIAN_PVM/bin/tst
echo "tst: $?"
$DEBIAN_PVM/bin/tjl 2>&1
echo "tjl: $?"
$DEBIAN_PVM/bin/tjf 2>&1
echo "tjf: $?"
$DEBIAN_PVM/bin/joinleave 350 2>&1 | sed -E 's/0x[0-9a-f]+/TID/'
