# ge, gexamp, gs.pvm, thb with tnb: groups that meet in a barrier.
#@ runs tnb
#@ needs $DEBIAN_PVM/bin/gexamp
#@ fresh
#@ unordered
# ge looks up members that may be leaving already, so its result is random.
for program in ge gexamp gs.pvm; do
    for count in 1 2 5; do
        $DEBIAN_PVM/bin/$program $count > $program.$count 2>&1
        echo "$program $count: $?" >> $program.$count
        sed -E "/waiting on kids/d; /^gid .* match/d;"' s/0x[0-9a-f]+/TID/' $program.$count
    done
done
$DEBIAN_PVM/bin/thb 3
$DEBIAN_PVM/bin/thb 0 2>&1 | tail -1
