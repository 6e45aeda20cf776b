# Debian's programs under limits of address space and file size, as batch systems set them for daemon and tasks.
#@ nodaemon
#@ runs slave1
#@ needs /usr/bin/master1
#@ needs /usr/bin/gexamp
#@ needs /usr/bin/hitc
#@ needs /usr/bin/spmd
. "$CONFORM/functions"
under() {
    echo "$*"
    "$@"
    pvmd > said 2> errors &
    daemon=$!
    wait_for_text said /
    timeout 20 /usr/bin/master1 | sort | sed -E 's/ +[0-9]{6,7}/ TID/'
    timeout 20 /usr/bin/gexamp 6 > gexamp.out 2>&1; echo "gexamp: $?"
    timeout 20 /usr/bin/ge 5 > ge.out 2>&1; echo "ge: $?"
    timeout 20 /usr/bin/hitc | sed -E 's/ +[0-9]{6,7}/ TID/' | sort
    end_daemon $daemon
    rm -f said
}
(under ulimit -v 400000)
(under ulimit -f 4000)
(ulimit -v 400000; under ulimit -f 4000)
