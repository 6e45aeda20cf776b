# The arguments of the remote shell when hosts are added: a remote shell script written for PVM 3.4 works.
#@ hosts 1
printf '%s\n' 'add "bravo lo=somebody sp=20 wd=/usr"' 'add "delta dx=${HOSTS_BIN:+pvmd}"' conf | pvm
sed -E 's/[0-9a-f]{8}:[0-9a-f]{4}/ADDRESS/g' "$HOSTS_FOLDER/rsh.log"
