# The output of jobs in files, and a host named by an address. PVM refuses a file that exists; hpvm replaces
# it or appends to it.
#@ fresh
#@ differs 4.2: file: File exists => (nothing)
#@ differs 4.2: more: File exists => (nothing)
#@ differs 4.2: [3]\nspawn ->>more /bin/echo fourth => [3]\n1 successful\nT\n[3] finished\nspawn ->>more /bin/echo fourth
#@ differs 4.2: [4]\nspawn --host=192.0.2.1 /bin/true => [4]\n1 successful\nT\n[4] finished\nspawn --host=192.0.2.1 /bin/true
#@ differs 4.2: [1:T] first\n[1:T] EOF => [3:T] third\n[3:T] EOF
#@ differs 4.2: [2:T] second\n[2:T] EOF => [2:T] second\n[2:T] EOF\n[4:T] fourth\n[4:T] EOF
(
    echo "spawn ->file /bin/echo first"
    sleep 0.5
    echo "spawn ->>more /bin/echo second"
    sleep 0.5
    echo "spawn ->file /bin/echo third"
    sleep 0.5
    echo "spawn ->>more /bin/echo fourth"
    sleep 0.5
    echo "spawn --host=192.0.2.1 /bin/true"
) | pvm | sed -E 's/^pvm> //; s/t4[0-9a-f]{4}/T/g; s/^(\[[0-9]\]) $/\1/'
for name in file more; do
    echo "$name:"
    sed -E 's/t4[0-9a-f]{4}/T/g' $name
done
