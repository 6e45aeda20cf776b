# The console's spawn -@: it writes a trace as text, to the console or to a file.
#@ runs hello_other
#@ needs $DEBIAN_PVM/bin/hello.pvm
#@ fresh
# Prints the records and their kinds, without times, without descriptions of the data, and without the events of calls
# inside the library.
shown() {
    sed -E 's/^(pvm> )*//; s/^\[T[0-9]+:t[0-9a-f]+\] ?//' "$1" | awk '
        /mhf_invoke/ { skip = /^#/ }
        /^#/ && !/mhf_invoke/ { skip = 0 }
        /^"/ { if (!/mhf_invoke|host_add|SPAWN/) print; next }
        skip || /^\t\/\// { next }
        /^#|^\t/ { printf "%s ", $0; next }
        /^\};;/ { print "}" }' | grep -v host_add |
        sed -E 's/\{ [0-9]+, [0-9]+,/{ TIME,/; s/\b26[0-9]{4}\b/TID/g; s/(recv.1.1." . TIME, TID), [0-9]+/\1, N/' |
        sed -E "s/\[[0-9]+\] \{ \"(i'm t|from t)[^}]*/WORDS /" | sort
}
(
    echo "trace - probe"
    echo "spawn -@ $DEBIAN_PVM/bin/hello.pvm"
    sleep 1
    echo "spawn -@file -> $DEBIAN_PVM/bin/hello.pvm"
    sleep 1
    echo "spawn -@no/such/folder/file $DEBIAN_PVM/bin/hello.pvm"
    echo "jobs"
) | pvm > out 2> errors
echo "---- console"
shown out
echo "---- file"
shown file
echo "---- errors"
grep -c folder errors
