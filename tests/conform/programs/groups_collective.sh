# trsg, frsg, gexample, fgexample: scatter, gather and reduce.
#@ needs $DEBIAN_PVM/bin/trsg
#@ fresh
#@ timeout 40
. "$CONFORM/functions"
# A frozen group exists until its last member has left; the first member does not wait for that.
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
# The order in which the products are multiplied is random.
$DEBIAN_PVM/bin/fgexample | sed -E 's/(9\.332621544394)[0-9]+/\1/'
