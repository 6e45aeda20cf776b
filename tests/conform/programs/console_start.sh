# The console starts a daemon; a script in a pipe leaves the daemon running at its end; halt ends it.
#@ nodaemon
#@ needs /usr/bin/pvmd
echo conf | pvm
echo "status $?"
pvm < /dev/null
echo "status $?"
echo "echo again" | pvm -d0x0
(echo halt | pvm) > /dev/null 2>&1
sleep 0.3
ls "$PVM_TMP" | grep -v -E 'pvml|output|input|home'
pvm a b < /dev/null > /dev/null 2>&1 || echo "refused"
echo "conf" > .pvmrc
echo "# comment" >> .pvmrc
echo "echo from the rc file" >> .pvmrc
echo "alias" | pvm
(echo halt | pvm) > /dev/null 2>&1
sleep 0.2
