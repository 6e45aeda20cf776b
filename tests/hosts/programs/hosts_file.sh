# A hostfile: options of hosts, defaults, a host that is added later, one that does not exist.
#@ nodaemon
#@ timeout 60
. "$CONFORM/functions"
cat > "$HOSTS_FOLDER/hostfile" << END
# a comment
* sp=300 wd=$HOSTS_FOLDER
bravo sp=400
&delta sp=700
charlie-other ip=10.77.0.3 ep=$HOSTS_BIN
nowhere
END
pvmd "$HOSTS_FOLDER/hostfile" > said 2>&1 &
wait_for_text said /
wait_for sh -c 'echo conf | pvm | grep -q charlie-other'
wait_for sh -c 'echo conf | pvm | grep -q bravo'
sleep 0.3
echo conf | pvm | tail -n +2
echo "add delta" | pvm | tail -n +2
echo conf | pvm | tail -n +2
(echo "spawn -> -bravo /bin/pwd"; sleep 0.7) | pvm | sed -nE 's/pvm> //g; /\] FO|\] \//!d; s/\bt[0-9a-f]{5,6}\b/TID/; p'
(echo "spawn -> -alfa /bin/pwd"; sleep 0.7) | pvm | sed -nE 's/pvm> //g; /\] FO|\] \//!d; s/\bt[0-9a-f]{5,6}\b/TID/; p'
grep -c -i nowhere "$PVM_TMP"/pvml.* | sed 's/[1-9][0-9]*/told/'
(echo halt | pvm) > /dev/null 2>&1
wait
