# tst, tjl, tjf, joinleave: many groups, joined and left many times.
#@ needs /usr/bin/tst
#@ fresh
/usr/bin/tst
echo "tst: $?"
/usr/bin/tjl 2>&1
echo "tjl: $?"
/usr/bin/tjf 2>&1
echo "tjf: $?"
/usr/bin/joinleave 350 2>&1 | sed -E 's/0x[0-9a-f]+/TID/'
