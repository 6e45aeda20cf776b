# tablix2: a timetable of two classes, solved by parallel kernels. The time to the solution is random, but the
# solution must be correct.
#@ needs $DEBIAN_PVM/bin/tablix2
#@ needs $DEBIAN_PVM/lib/pvm3/bin/LINUX64/tablix2_kernel
#@ fresh
#@ timeout 60
cp "$CONFORM/data/timetable.xml" .
tablix2 -n 2 -i "$(dirname "$(find "$DEBIAN_PVM/lib" -name consecutive.so)")" timetable.xml > output 2>&1
echo "status $?"
test -s result0.xml && echo "a result"
# One line for each event: teacher, class, room, time.
sed -n '/<events>/,$p' result0.xml | tr '\n' ' ' | sed 's/<event /\n/g' |
    sed -n -E 's/.*"teacher" name="([^"]*)".*"class" name="([^"]*)".*"room" name="([^"]*)".*"time" name="([^"]*)".*/\1,\2,\3,\4/p' > events
echo "$(grep -c . events) events"
for who in 1 2 3; do
    echo "meetings of column $who at one time: $(cut -d, -f$who,4 events | sort | uniq -d | wc -l)"
done
cut -d, -f1,2 events | sort | uniq -c
