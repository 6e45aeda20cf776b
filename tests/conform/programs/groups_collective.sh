# trsg, frsg, gexample, fgexample: scatter, gather and reduce.
#@ needs $DEBIAN_PVM/bin/trsg
#@ fresh
#@ timeout 40
. "$CONFORM/functions"
# A frozen group exists until its last member has left; the first member does not wait for that.
is_over() {
    ! echo "ps -a" | pvm | grep -E 'rsg|gexample'
}
# frsg adds one of its two sums to a variable that it has never set; what it finds there depends on the processor and the libraries.
sums() {
    sed -E 's@Test OK: Sum of Squares of first +([0-9]+) +integers is +([0-9]+)@sum \1 \2@
        s@ERROR: The Sum of Squares of the first +([0-9]+) +integers / was calculated by Sum1 as +-?[0-9]+ +and by Sum2 as +([0-9]+).*@sum \1 \2@'
}
for input in "4 5" "1 3" "9 20"; do
    echo $input | tr ' ' '\n' | $DEBIAN_PVM/bin/trsg
    echo "trsg: $?"
    wait_for is_over
    echo $input | tr ' ' '\n' | {
        $DEBIAN_PVM/bin/frsg
        echo "frsg: $?"
    } | sums
    wait_for is_over
done
echo 100 10 | $DEBIAN_PVM/bin/gexample
wait_for is_over
echo 7 20 | $DEBIAN_PVM/bin/gexample
wait_for is_over
# The order in which the products are multiplied is random.
$DEBIAN_PVM/bin/fgexample | sed -E 's/(9\.332621544394)[0-9]+/\1/'
