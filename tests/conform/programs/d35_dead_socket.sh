# D35: a PVMSOCK of a dead daemon does no harm while the file names a living one.
#@ fresh
#@ ours-only D35: skip
export PVMSOCK="$PVM_TMP/nobody"
$DEBIAN_PVM/bin/hello.pvm | sed "s/ from [a-z].*/ from HOST/"
echo conf | pvm | head -3 | tail -1
