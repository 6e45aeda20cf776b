# spmd: three siblings pass a token round.
#@ needs /usr/bin/spmd
#@ fresh
#@ unordered
(echo "spawn -3 -> spmd"; sleep 1) | pvm | sed -E 's/[0-9]{6}/N/g'
/usr/bin/spmd | sed -E 's/[0-9]{6}/N/g'
