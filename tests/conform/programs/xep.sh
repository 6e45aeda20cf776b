# xep, a program of the X window system, spawns mtile, polls PVM's descriptors and that of the display, and shows the
# picture on the screen.
#@ runs mtile
#@ needs $DEBIAN_PVM/bin/xep
#@ needs /usr/bin/Xvfb
#@ needs /usr/bin/xwd
#@ fresh
#@ hostfile * ep=$DEBIAN_PVM/bin
#@ timeout 60
. "$CONFORM/functions"
Xvfb -displayfd 3 -screen 0 300x300x24 -nolisten tcp 3> display > server.out 2>&1 &
server=$!
wait_for test -s display
DISPLAY=:$(cat display)
export DISPLAY
$DEBIAN_PVM/bin/xep > xep.out 2>&1 &
xep=$!
# The picture is complete when it no longer changes.
last=none
for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    sleep 0.5
    xwd -root -silent -out screen.xwd || continue
    now=$(tail -c 360000 screen.xwd | cksum)
    colours=$(tail -c 360000 screen.xwd | od -An -v -tx4 -w4 | sort -u | wc -l)
    [ "$now" = "$last" ] && [ "$colours" -gt 5 ] && break
    last=$now
done
echo "picture $now, $colours colours"
echo "ps -a" | pvm | grep -c mtile
# The shell may print that its background processes have ended.
{
    kill $xep $server
    wait $xep $server
} 2> /dev/null
sed -E 's/(tid|fd|xii) [0-9a-fx]+/\1 N/g' xep.out
