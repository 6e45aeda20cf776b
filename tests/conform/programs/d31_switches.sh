# D31: unknown switches and unreadable hostfiles are reported, and the exit status is not 0.
#@ nodaemon
#@ ours-only D31: skip
try() {
    timeout 5 pvmd "$@" > said 2>&1
    status=$?
    test $status -ne 0 -a $status -ne 124 && echo "$*: refused"
    test -s said && echo "$*: says why"
}
try -z
try no-such-file
try a b
