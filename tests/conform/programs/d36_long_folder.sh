# D36: a folder with a very long name.
#@ nodaemon
#@ ours-only D36: skip
. "$CONFORM/functions"
name=$(printf 'a%.0s' $(seq 100))
mkdir -p "$PVM_TMP/$name/$name"
base=$PVM_TMP
export PVM_TMP="$PVM_TMP/$name/$name"
pvmd > said 2> errors &
daemon=$!
wait_for_text said /
"$DEBIAN_PVM/bin/master1" | wc -l
end_daemon $daemon
