# trsg, frsg, gexample, fgexample: scatter, gather and reduce.
#@ needs $DEBIAN_PVM/bin/trsg
#@ fresh
#@ timeout 40
. "$CONFORM/functions"
# A frozen group is there until its last member has left, which the first does not wait for.
is_over() {
    ! echo "ps -a" | pvm | grep -E 'rsg|gexample'
}
for input in "4 5" "1 3" "9 20"; do
    echo $input | tr ' ' '\n' | $DEBIAN_PVM/bin/trsg
    echo "trsg: $?"
    wait_for is_over
    echo $input | tr ' ' '\n' | $DEBIAN_PVM/bin/frsg
    echo "frsg: $?"
    wait_for is_over
done
echo 100 10 | $DEBIAN_PVM/bin/gexample
wait_for is_over
echo 7 20 | $DEBIAN_PVM/bin/gexample
wait_for is_over
# In which order the products are multiplied is chance.
$DEBIAN_PVM/bin/fgexample | sed -E 's/(9\.332621544394)[0-9]+/\1/'
