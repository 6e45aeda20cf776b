# D33: a very high limit on open descriptors does not make spawn slow.
#@ nodaemon
#@ ours-only D33: skip
. "$CONFORM/functions"
ulimit -n 500000 2> /dev/null || ulimit -n "$(ulimit -H -n)"
pvmd > said 2> errors &
wait_for_text said /
before=$(date +%s%N)
echo "spawn -20 /bin/true" | pvm | grep -c '^t'
after=$(date +%s%N)
test $(((after - before) / 1000000)) -le 1000 && echo "fast"
