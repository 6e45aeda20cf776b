# D22: after a crash of the daemon a new one starts at once.
#@ nodaemon
#@ ours-only D22: skip
. "$CONFORM/functions"
uid=$(id -u)
pvmd > said 2> errors &
first=$!
wait_for_text said /
kill -9 $first
wait $first 2> /dev/null
test -e "$PVM_TMP/pvmd.$uid" && echo "the file is still there"
before=$(date +%s)
echo conf | pvm | head -2
after=$(date +%s)
test $((after - before)) -le 2 && echo "soon"
(echo halt | pvm) > /dev/null 2>&1
sleep 0.2
ls "$PVM_TMP" | grep -v -E '^(home|output|pvml\..*)$'
