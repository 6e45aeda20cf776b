# D22: a second daemon reports that one is running, and ends; that of PVM starts, but no program finds it.
#@ nodaemon
#@ ours-only D22: skip
. "$CONFORM/functions"
pvmd > said 2> errors &
wait_for_text said /
pvmd > second 2>&1; status=$?
test $status -ne 0 && echo "refused"
grep -q -i running second && echo "and says why"
echo conf | pvm | head -3 | tail -1
