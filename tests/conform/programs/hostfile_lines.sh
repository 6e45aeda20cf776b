# Lines of a hostfile: defaults, the marks & and $, comments, and invalid lines. The messages in the log differ between
# the daemons.
#@ nodaemon
. "$CONFORM/functions"
host=$(hostname)
mkdir -p first second
long=$(printf 'x%.0s' $(seq 600))
cat > hosts <<S
   # a comment, moved in
* wd=$PWD/first sp=10
* wd=$PWD/second
$host bad=option sp=20
$host one=1
a b c d e f g h i j k l
$long
&not-now
& not-now-either sp=5
$host sp=30
S
pvmd hosts > said 2> errors &
wait_for_text said /
printf '%s\n' conf 'spawn -> /bin/pwd' | (cat; sleep 0.5) | pvm | sed -E 's/^pvm> //; s/t4[0-9a-f]{4}/T/g' | sort
(echo halt | pvm) > /dev/null 2>&1
wait
