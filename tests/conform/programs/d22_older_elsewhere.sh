# D22: if pvmd on another host is that of PVM 3.4.6, hpvm's pvmd in hpvm's own directory is used instead; if that does
# not exist, the error names it.
#@ nodaemon
#@ timeout 40
#@ ours-only D22: skip
. "$CONFORM/functions"
library=$(find "$DEBIAN_PVM/lib" -name libpvm3.so.3)
mkdir there
cat > rsh <<END
#!/bin/sh
# The simulated other host: its own folder, and Debian's programs first in PATH.
shift
export PVM_TMP=$PWD/there PVM_ALLOW_ROOT=1
export LD_LIBRARY_PATH="${library%/*}" PVM_ROOT="$DEBIAN_PVM/lib/pvm3"
# The processes on the other host do not end with this command.
PATH="$DEBIAN_PVM/bin:/usr/bin:/bin" exec setsid sh -c "\$*"
END
chmod +x rsh
export PVM_RSH=$PWD/rsh
pvm up '$h2 ip=127.0.0.1' > up 2> errors
echo "up: status $?"
cat errors
sed -n 's/^ *\(h2\) .*/\1/p' up
grep -c "h2: pvmd there is of PVM 3.4.6; trying '\?/" "$PVM_TMP"/pvml.*
pvm delete h2 > /dev/null
wait_for test ! -e "$(echo there/pvmd.*)"
pvm up '$h3 ip=127.0.0.1 dx=pvmd' 2>&1 > /dev/null | sed -n 's/ (tried.*//; s/^h3: //p; /try:/p'
(echo halt | pvm) > /dev/null 2>&1
end_strays() {
    for process in $(ls /proc | grep '^[0-9]'); do
        tr '\0' ' ' < "/proc/$process/cmdline" 2> /dev/null | grep -q -e "^pvmd -s .*-nh3 " && kill "$process"
    done
}
end_strays 2> /dev/null
true
