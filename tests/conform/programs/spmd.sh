# spmd: three siblings pass a token around.
#@ needs $DEBIAN_PVM/bin/spmd
#@ fresh
#@ unordered
(echo "spawn -3 -> spmd"; sleep 1) | pvm | sed -E 's/pvm> //g; s/[0-9]{6,7}/N/g; s/t[0-9a-f]{5,6}/T/; /^(\[1\]|) *$/d; s/^\[1\] spawn/spawn/'
$DEBIAN_PVM/bin/spmd | sed -E 's/[0-9]{6,7}/N/g'
