# Debian's programs with limits of address space and file size, as batch systems set them for daemons and
# tasks.
#@ nodaemon
#@ runs slave1
#@ needs $DEBIAN_PVM/bin/master1
#@ needs $DEBIAN_PVM/bin/gexamp
#@ needs $DEBIAN_PVM/bin/hitc
#@ needs $DEBIAN_PVM/bin/spmd
. "$CONFORM/functions"
under() {
    echo "$*"
    "$@"
    pvmd > said 2> errors &
    daemon=$!
    wait_for_text said /
    timeout 20 $DEBIAN_PVM/bin/master1 | sort | sed -E 's/ +[0-9]{6,7}/ TID/'
    timeout 20 $DEBIAN_PVM/bin/gexamp 6 > gexamp.out 2>&1; echo "gexamp: $?"
    timeout 20 $DEBIAN_PVM/bin/ge 5 > ge.out 2>&1; echo "ge: $?"
    timeout 20 $DEBIAN_PVM/bin/hitc | sed -E 's/ +[0-9]{6,7}/ TID/' | sort
    end_daemon $daemon
    rm -f said
}
(under ulimit -v 400000)
(under ulimit -f 4000)
(ulimit -v 400000; under ulimit -f 4000)
