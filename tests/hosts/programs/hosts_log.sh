# Output of tasks on all hosts that nobody collects goes to the log of the first host. The lines are sorted without
# their times, since a new second may begin between two of them.
#@ fresh
. "$CONFORM/functions"
for host in alfa bravo charlie delta; do
    echo "spawn -$host /bin/hostname" | pvm > /dev/null 2>&1
done
seen() {
    test "$(grep -c -E '\] (alfa|bravo|charlie|delta)$' "$PVM_TMP"/pvml.*)" = 4
}
wait_for seen
grep -E '\] (alfa|bravo|charlie|delta)$' "$PVM_TMP"/pvml.* | sort -k 4
for host in bravo charlie delta; do
    "$PVM_RSH" $host 'cat $PVM_TMP/pvml.*' | grep -c -E '\] (alfa|bravo|charlie|delta)$'
done
