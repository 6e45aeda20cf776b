# D34: the daemon that a console starts survives the end of its session.
#@ nodaemon
#@ ours-only D34: skip
. "$CONFORM/functions"
setsid sh -c 'echo conf | pvm > said; kill -TERM 0' 2> /dev/null
sleep 0.2
echo conf | pvm | head -1
(echo halt | pvm) > /dev/null 2>&1
