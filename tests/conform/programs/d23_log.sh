# D23: every run of a daemon writes a log, even the second one; but if the log file is a link, nothing is written.
#@ nodaemon
#@ differs D23: second run logs: 0 => second run logs: 1
. "$CONFORM/functions"
uid=$(id -u)
run() {
    pvmd > said 2> errors &
    daemon=$!
    wait_for_text said /
    printf '%s\n' 'spawn /bin/hostname' | (cat; sleep 0.4) | pvm > /dev/null
    end_daemon $daemon
    rm -f said
}
run
echo "first run logs: $(grep -c "$(hostname)\$" "$PVM_TMP/pvml.$uid")"
: > "$PVM_TMP/pvml.$uid"
run
echo "second run logs: $(grep -c "\[t[0-9a-f]*\] $(hostname)\$" "$PVM_TMP/pvml.$uid")"
rm -f "$PVM_TMP/pvml.$uid"
echo "precious" > precious
ln -s "$PWD/precious" "$PVM_TMP/pvml.$uid"
run
cat precious
