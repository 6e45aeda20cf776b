# D28: root may run everything without a setting.
#@ nodaemon
#@ ours-only D28: skip
unset PVM_ALLOW_ROOT
echo conf | pvm | head -2
"$DEBIAN_PVM/bin/hello.pvm" | wc -l
(echo halt | pvm) > /dev/null 2>&1
