# task0, task1, task_end, lmbi, gmbi, rme: services that are found through mailboxes.
#@ needs $DEBIAN_PVM/bin/task0
#@ fresh
. "$CONFORM/functions"
# The names that lmbi makes contain its tid.
names() {
    sed -E 's/t4[0-9a-f]{4}lmbi/Tlmbi/g'
}
ids() {
    sed -E 's/(tid|id): 4[0-9a-f]{4}/\1: TID/'
}
echo "---- a service, two clients"
$DEBIAN_PVM/bin/task0 service d > service.out 2>&1 &
wait_for sh -c '$DEBIAN_PVM/bin/gmbi service | grep -q service'
$DEBIAN_PVM/bin/task1 service | ids
$DEBIAN_PVM/bin/task1 service 0 f | ids
$DEBIAN_PVM/bin/task1 other
$DEBIAN_PVM/bin/gmbi
$DEBIAN_PVM/bin/task0 service d
$DEBIAN_PVM/bin/rme service 0
$DEBIAN_PVM/bin/rme nothing 0
$DEBIAN_PVM/bin/task_end service 0 | ids
wait
cat service.out
$DEBIAN_PVM/bin/gmbi
echo "---- entries of every kind"
$DEBIAN_PVM/bin/lmbi 2 p e | names
$DEBIAN_PVM/bin/lmbi 2 d e | names
$DEBIAN_PVM/bin/gmbi '*' | names
$DEBIAN_PVM/bin/lmbi 3 m w > lasting.out 2>&1 &
wait_for sh -c '$DEBIAN_PVM/bin/gmbi lmbi2 | grep -q lmbi2'
$DEBIAN_PVM/bin/gmbi lmbi | names
$DEBIAN_PVM/bin/gmbi 'lmbi*2' | names
$DEBIAN_PVM/bin/rme lmbi 0
echo "status $?"
