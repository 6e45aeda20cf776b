# More hosts are added than the first daemon starts at a time: hosts that have joined start others; if they cannot, the
# first daemon starts them.
#@ hosts 1
#@ nodaemon
#@ ours-only PVM 3.4.6 starts all hosts itself: skip
#@ timeout 60
. "$CONFORM/functions"
who="$HOSTS_FOLDER/who"
shell() {
    printf '%s\n' '#!/bin/sh' "echo \$1 by \$(hostname) >> $who" "$1" 'sleep 0.3' "exec $HOSTS_FOLDER/rsh \"\$@\""
}
shell "" > "$HOSTS_FOLDER/slow"
shell '[ "$(hostname)" = alfa ] || { echo no login from here >&2; exit 255; }' > "$HOSTS_FOLDER/alfa-only"
chmod +x "$HOSTS_FOLDER/slow" "$HOSTS_FOLDER/alfa-only"
for name in slow alfa-only; do
    echo "---- $name"
    : > "$who"
    PVM_RSH="$HOSTS_FOLDER/$name" HPVM_STARTS_MAX=1 pvmd > said 2>&1 &
    wait_for_text said /
    echo "add bravo charlie delta" | pvm | grep successful
    echo "mstat bravo charlie delta" | "$PVM_RSH" delta pvm | grep ok
    sort "$who"
    sed -n 's/.*stderr@/stderr@/p; s/.*\(host delta: .*\); its last.*/\1/p; s/.*\(host delta: not by [^ ]*\):.*last words/\1: last words/p' "$PVM_TMP"/pvml.*
    (echo halt | pvm) > /dev/null 2>&1
    wait
done
# The first daemon reports only errors that concern all hosts.
echo "---- nobody"
PVM_RSH=/nowhere/rsh HPVM_STARTS_MAX=1 pvmd > said 2>&1 &
wait_for_text said /
echo "add bravo charlie delta" | pvm | grep -c "/nowhere/rsh: No such file"
(echo halt | pvm) > /dev/null 2>&1
wait
