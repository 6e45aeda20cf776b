# The variables and the options that the daemon reads.
#@ nodaemon
. "$CONFORM/functions"
mkdir -p here there
cp /bin/true here/own-true
cp "$CONFORM/data/debugger" bugs
machine() {
    rm -f said
    env "$@" > said 2> errors &
    wait_for_text said /
    printf '%s\n' 'conf' 'spawn own-true' 'spawn -> /bin/pwd' 'spawn -? -> /bin/echo words' |
        (cat; sleep 0.7) | pvm | sed -E 's/^pvm> //; s/t4[0-9a-f]{4}/T/g; s/^(\[[0-9]+\]) ?$/\1/; /^(\[[0-9]+\]|)$/d' | sort
    (echo halt | pvm) > /dev/null 2>&1
    wait
}
path=$PWD
echo "---- PVM_PATH and PVM_DEBUGGER"
machine PVM_PATH="$path/nowhere:$path/here" PVM_DEBUGGER="$path/bugs" pvmd
echo "---- PVM_WD"
machine PVM_PATH="$path/here" PVM_DEBUGGER="$path/bugs" PVM_WD="$path/there" pvmd
echo "---- PVMHOSTFILE, with a line for all hosts"
echo "* ep=$path/here wd=$path/there bx=$path/bugs sp=77" > hosts
machine PVMHOSTFILE="$path/hosts" PVM_PATH=/nowhere pvmd
echo "---- a hostfile on the command line comes first"
echo "# nothing" > empty
machine PVMHOSTFILE="$path/hosts" PVM_PATH=/nowhere PVM_DEBUGGER="$path/bugs" pvmd empty
echo "---- a name of one's own"
machine PVM_DEBUGGER="$path/bugs" pvmd -nlocalhost
