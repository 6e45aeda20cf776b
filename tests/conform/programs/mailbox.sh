# task0, task1, task_end, lmbi, gmbi, rme: services found through mailboxes.
#@ needs /usr/bin/task0
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
/usr/bin/task0 service d > service.out 2>&1 &
wait_for sh -c '/usr/bin/gmbi service | grep -q service'
/usr/bin/task1 service | ids
/usr/bin/task1 service 0 f | ids
/usr/bin/task1 other
/usr/bin/gmbi
/usr/bin/task0 service d
/usr/bin/rme service 0
/usr/bin/rme nothing 0
/usr/bin/task_end service 0 | ids
wait
cat service.out
/usr/bin/gmbi
echo "---- entries of every kind"
/usr/bin/lmbi 2 p e | names
/usr/bin/lmbi 2 d e | names
/usr/bin/gmbi '*' | names
/usr/bin/lmbi 3 m w > lasting.out 2>&1 &
wait_for sh -c '/usr/bin/gmbi lmbi2 | grep -q lmbi2'
/usr/bin/gmbi lmbi | names
/usr/bin/gmbi 'lmbi*2' | names
/usr/bin/rme lmbi 0
echo "status $?"
