# Values of sp= that are no speeds do not cost the host. PVM takes them as they are.
#@ nodaemon
#@ timeout 40
#@ differs 5.3: sp=0: 0 => sp=0: 1000
#@ differs 5.3: sp=-5: -5 => sp=-5: 1000
#@ differs 5.3: sp=abc: 0 => sp=abc: 1000
. "$CONFORM/functions"
host=$(hostname)
for speed in 0 -5 abc 7; do
    echo "$host sp=$speed" > hosts
    # The text of the daemon before must not count.
    rm -f said
    pvmd hosts > said 2> errors &
    wait_for_text said /
    printf '%s\n' conf | (cat; sleep 0.5) | pvm | sed -nE "s/.* LINUX64 +(-?[0-9]+) .*/sp=$speed: \1/p"
    (echo halt | pvm) > /dev/null 2>&1
    wait
done
