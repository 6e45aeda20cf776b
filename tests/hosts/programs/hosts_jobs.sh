# Jobs of the console on all hosts: output, ps, kill, sig.
#@ unordered
#@ timeout 40
(
    printf '%s\n' "spawn -> -4 /bin/hostname" "spawn -> -charlie -2 /bin/hostname" "spawn -> -3 -~ -. /bin/hostname"
    sleep 1
    echo "spawn -> -nowhere /bin/hostname"
    echo "spawn -> -LINUX64 -2 /bin/hostname"
    sleep 1
) | pvm | sed -E 's/pvm> //g; s/\bt[0-9a-f]{5,6}\b/TID/g'
(
    echo "spawn -delta sleep 50"
    sleep 0.3
    echo "ps -a"
    echo "ps -ndelta"
    echo "ps -h100000"
    echo "ps -al"
) | pvm | sed -E 's/pvm> //g; s/\bt[0-9a-f]{5,6}\b/TID/g; s/(sleep|delta) +[0-9a-f]{5,6} /\1 TID /; s/ (ffffffdd|       -) +[0-9]+ +2\// NO PARENT PID 2\//'
tid=$(echo "ps -ndelta" | pvm | sed -nE 's/^.* +delta +([0-9a-f]+) .*sleep.*/\1/p')
printf 'pstat t%s\nkill %s\n' "$tid" "$tid" | pvm | sed -E 's/pvm> //g; s/\bt?[0-9a-f]{6}\b/TID/g'
sleep 0.3
echo "ps -a" | pvm | sed -E 's/pvm> //g'
