# Hosts that have IPv6 only: what is broadcast goes to a group of IPv6, and each host hears it.
#@ hosts 1
#@ nodaemon
#@ ours-only D26: skip
. "$CONFORM/functions"
all="alfa bravo charlie delta"
# Restores addresses and names for the next script.
trap 'number=0; for host in $all; do number=$((number + 1)); "$PVM_RSH" $host "umount /etc/hosts; ip addr add 10.77.0.$number/24 dev eth0"; done' EXIT
for host in $all; do
    "$PVM_RSH" $host 'sed "/^10.77/d" /etc/hosts > six; mount --bind six /etc/hosts; ip -4 addr flush dev eth0'
done
heard() { "$PVM_RSH" $1 "awk '/^Udp6InDatagrams/ { print \$2 }' /proc/net/snmp6"; }
pvmd > said 2>&1 &
wait_for_text said /
printf 'add bravo charlie delta\nconf\n' | pvm | grep -c '0x0'
for host in bravo charlie delta; do eval "$host=$(heard $host)"; done
"$HOSTS_BIN/hosts_mcast_log" | tail -n 2
for host in bravo charlie delta; do
    eval "before=\$$host"
    test "$(heard $host)" -gt "$before" && echo "$host has heard datagrams"
done
grep -h 'broadcast to' "$HOSTS_FOLDER"/*/tmp/pvml.*
(echo halt | pvm) > /dev/null 2>&1
wait
