#!/bin/sh
# Tries the Debian packages in /build, in a fresh Debian system that has Debian's PVM and programs that use it: they
# take its place, the programs run on our machine, and removal and the way back are clean. `cargo xtask packages` runs
# this.
set -eu
version=$1
export DEBIAN_FRONTEND=noninteractive PVM_ALLOW_ROOT=1
programs="pvm-examples tablix2 slang-pvm netpipe-pvm"
ours="/build/libpvm3_*.deb /build/pvm_*.deb /build/pvm-dev_*.deb"
cd /build

# What is in the directories of the system, without what apt and dpkg keep for themselves.
listing() {
    find /etc /usr /opt \( -path /usr/share/doc -o -path /usr/share/man -o -path /etc/ld.so.cache \) -prune -o -print | sort
}

get() {
    apt-get -qq install -y --no-install-recommends "$@" >/build/apt.log 2>&1 || { cat /build/apt.log; exit 1; }
}

check_installed() {
    for package in libpvm3 pvm pvm-dev; do
        found=$(dpkg-query --show --showformat='${Version} ${db:Status-Status}' $package)
        [ "$found" = "$1 installed" ] || { echo "$package: $found, not $1"; exit 1; }
    done
    for package in $programs; do
        dpkg-query --show --showformat='${db:Status-Status}\n' "$package" | grep -qx installed
    done
    dpkg --audit
    apt-get -qq check
}

# Starts a machine with our daemon.
start() {
    pvmd --version | grep -q '^pvmd.*hpvm'
    echo conf | pvm >/build/started 2>&1
    grep -q '1 host' /build/started || { cat /build/started; exit 1; }
}

halt() {
    # The console ends with the machine.
    echo halt | pvm >/dev/null 2>&1 || true
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        pidof pvmd pvmd3 >/dev/null || return 0
        sleep 0.5
    done
    echo 'pvmd does not end'
    exit 1
}

run_programs() {
    export PVM_PATH=/usr/bin:/usr/lib/pvm3/bin/LINUX64 PVM_EXPORT=SLSH_PATH
    mkdir -p /build/work
    cd /build/work
    start
    echo '   pvm-examples: timing, gexample, master1'
    # What its main returns is left to chance.
    timeout 60 timing >timing.out 2>&1 || true
    grep -q '^done' timing.out || { cat timing.out; exit 1; }
    printf '4\n3\n' | timeout 60 gexample >gexample.out 2>&1
    grep -q '1-Norm is 10' gexample.out || { cat gexample.out; exit 1; }
    printf '3\n' | timeout 60 master1 >master.out 2>&1 || true
    [ "$(grep -c 'I got' master.out)" -ge 3 ] || { cat master.out; exit 1; }
    echo '   netpipe-pvm: NPpvm'
    timeout 60 NPpvm -u 2000 -n 3 >receiver.out 2>&1 &
    sleep 1
    timeout 60 NPpvm -h localhost -u 2000 -n 3 >sender.out 2>&1 || true
    wait || true
    [ -s np.out ] || { cat sender.out; exit 1; }
    halt

    echo '   tablix2'
    start
    timeout 60 tablix2 -n 2 /build/timetable.xml >tablix.out 2>&1 || { cat tablix.out; exit 1; }
    [ -s result0.xml ] || { cat tablix.out; exit 1; }
    halt

    echo '   slang-pvm'
    start
    zcat -f /usr/share/doc/slang-pvm/examples/master* >master
    zcat -f /usr/share/doc/slang-pvm/examples/slave* >slave
    chmod +x master slave
    SLSH_PATH=/usr/share/slsh:/usr/share/slsh/local-packages \
        timeout 60 slsh ./master 'echo some words' 2 >slang.out 2>&1 || { cat slang.out; exit 1; }
    grep -q 'some words' slang.out || { cat slang.out; exit 1; }
    halt

    echo '   a program that is compiled now'
    # shellcheck disable=SC2046 # one word an option
    cc -O2 /build/roots.c -o roots $(pkg-config --cflags --libs pvm3)
    timeout 60 pvm run ./roots 4 >roots.out 2>&1 || { cat roots.out; exit 1; }
    grep -q '1' roots.out
    cd /build
    rm -rf /build/work
}

get slsh gcc libc6-dev pkg-config
echo "== Debian's packages"
# shellcheck disable=SC2086 # one word a package
get pvm pvm-dev libpvm3 $programs
theirs=$(dpkg-query --show --showformat='${Version}' pvm)
listing >/build/theirs

echo '== our packages over them'
# shellcheck disable=SC2086 # one word a file
get $ours
check_installed "$version"
run_programs
[ "$(pkg-config --variable=libdir pvm3)" = "/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)" ]
pvm run -n 2 sh -c 'echo a task' | grep -c 'a task' | grep -qx 2
[ ! -e /usr/lib/pvm3/bin/rsh ] && [ ! -e /etc/alternatives/pvm-rsh ]

echo '== the way back'
# shellcheck disable=SC2086
get --allow-downgrades libpvm3=$theirs pvm=$theirs pvm-dev=$theirs
check_installed "$theirs"
listing >/build/back
diff /build/theirs /build/back

echo '== our packages again, with the Python module, and their removal'
# shellcheck disable=SC2086
get $ours /build/python3-hpvm_*.deb
check_installed "$version"
timeout 120 python3 -m hpvm.demo
apt-get -qq purge -y libpvm3 pvm pvm-dev python3-hpvm >/build/apt.log 2>&1
apt-get -qq autoremove --purge -y >>/build/apt.log 2>&1
left=$(find /usr /etc \( -name '*pvm*' -o -name 'libfmp*' -o -name '*hpvm*' \) | grep -v -e /usr/share/slsh -e /usr/share/bug || true)
[ -z "$left" ] || { echo "left: $left"; exit 1; }
echo '== everything is as it must be'
