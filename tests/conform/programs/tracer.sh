# tracer collects the events of hello.pvm and hello_other, and trcsort sorts them.
#@ runs hello_other
#@ runs tracer
#@ runs trcsort
#@ needs $DEBIAN_PVM/bin/hello.pvm
#@ needs $DEBIAN_PVM/bin/tracer
#@ fresh
. "$CONFORM/functions"

# Debian's trcsort reopens each of its temporary files with O_EXCL, which cannot work. This removes the flag.
cat > again.c <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
int open(const char *path, int flags, ...)
{
    va_list arguments;
    mode_t mode;
    va_start(arguments, flags);
    mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (strstr(path, "tmpsort."))
        flags &= ~(O_EXCL | (flags & O_APPEND ? O_TRUNC : 0));
    return openat(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
C
cc -shared -fPIC -o again.so again.c

# The records, without times and buffer numbers, and with words in place of tids.
records() {
    grep '^"' "$1" | grep -v '^"host_' | sed -E 's/\{ [0-9]+, [0-9]+,/{ TIME,/; s/\b26[0-9]{4}\b/TID/g; s/("recv.1.1." . TIME, TID), [0-9]+/\1, N/'
}
# The description before the records of each kind, without the descriptions of the data.
kinds() {
    grep -v -e '^"' -e '^	//' -e '^ \*' -e '^$' "$1" | tr -d '\n' | sed 's/;;/;;\n/g' | grep -v '"host_' | sort -u
}

mkfifo commands
tracer -T trace < commands > tracer.out 2>&1 &
tracer=$!
exec 3> commands
wait_for_text tracer.out "tracer>"
$DEBIAN_PVM/bin/hello.pvm > hello.out
sed -E 's/t4[0-9a-f]{4}/TASK/g' hello.out
wait_for sh -c 'grep -c "^.endtask" trace | grep -q 2'
echo quit >&3
exec 3>&-
wait $tracer
grep -v -e '^ [* ] ' -e 'Trace File Complete' tracer.out | sed -E 's/0x4[0-9a-f]{4}/TID/' | sed '/^$/d'
echo "---- kinds of records"
kinds trace
echo "---- records"
records trace | sort
echo "---- in order"
LD_PRELOAD="$PWD/again.so" trcsort trace -o sorted
echo "status $?"
records sorted | sort > one
records trace | sort | cmp - one && echo "all of them"
grep '^"' sorted | sed -E 's/^[^{]*\{ ([0-9]+), +([0-9]+),.*/\1 \2/' | sort -c -n -k1,1 -k2,2 && echo "none before another"
echo "---- the mask"
tracer -T other < /dev/null | grep -c '^ [* ] '
