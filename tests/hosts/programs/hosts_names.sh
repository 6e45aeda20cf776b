# Hosts whose own names resolve to loopback addresses, as after Debian's installer, and a host with IPv6 only.
#@ hosts 1
#@ nodaemon
#@ ours-only D24: skip
. "$CONFORM/functions"
# Restores the names for the next script.
trap 'for host in alfa bravo charlie; do "$PVM_RSH" $host umount /etc/hosts; done' EXIT
for host in alfa bravo charlie; do
    "$PVM_RSH" $host 'sed "s/^10.77.*$(hostname) .*/127.0.1.1 $(hostname)/" /etc/hosts > hosts; cat hosts > mine; mount --bind mine /etc/hosts'
done
getent ahostsv4 alfa | sed -n 's/ .*//; 1p'
pvmd > said 2>&1 &
wait_for_text said /
printf 'add bravo charlie.hpvm.test delta-six\nconf\nspawn -4 /bin/hostname\n' | pvm | grep -v '^\[' | sed -E 's/^t[0-9a-f]{5,6}$/TID/; s/^pvm> //'
echo "---- from another host"
echo "mstat alfa bravo charlie delta delta-six" | "$PVM_RSH" bravo pvm | sed -E 's/^pvm> //'
(echo halt | pvm) > /dev/null 2>&1
wait
