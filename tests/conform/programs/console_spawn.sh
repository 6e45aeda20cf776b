# The places and flags of the console's spawn, and ps and jobs while tasks run.
#@ fresh
cat > sleeper <<'S'
#!/bin/sh
exec sleep 30
S
chmod +x sleeper
host=$(hostname)
(
    cat <<S
spawn -1 sleeper
spawn -$host sleeper
spawn -. sleeper
spawn -nohost sleeper
spawn -LINUX64 sleeper
spawn -NOARCH sleeper
spawn -:/tmp sleeper
spawn -$host:/usr sleeper
spawn -~ -nohost sleeper
ps
ps -a
ps -al
jobs
jobs -l
kill t4000fff
sig 9 t40002
kill t40003 40004
S
    sleep 0.3
    echo ps
    echo reset
    sleep 0.3
    echo ps
    echo ps -x
) | pvm | sed -E 's/(ffffffdd|       -) +[0-9]+ /NO PARENT PID /'
