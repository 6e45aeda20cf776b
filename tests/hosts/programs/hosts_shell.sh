# What the remote shell is asked to do when a host is added.
#@ hosts 1
echo "add bravo" | pvm
sed -E 's/[0-9a-f]{8}:[0-9a-f]{4}/ADDRESS/g' "$HOSTS_FOLDER/rsh.log"
