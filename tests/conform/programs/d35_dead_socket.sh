# D35: if PVMSOCK names a dead daemon, programs find a living daemon by its file.
#@ fresh
#@ ours-only D35: skip
export PVMSOCK="$PVM_TMP/nobody"
"$DEBIAN_PVM/bin/hello.pvm" | sed "s/ from [a-z].*/ from HOST/"
echo conf | pvm | head -3 | tail -1
