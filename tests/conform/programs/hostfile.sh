# Hostfile options of the master itself.
#@ nodaemon
. "$CONFORM/functions"
host=$(hostname)
mkdir -p elsewhere work
cp /bin/true elsewhere/my-true
cat > hosts <<S
# a comment

$host ep=\$HOME/elsewhere:\${HOME}/nowhere wd=\$HOME/work sp=2345
S
pvmd hosts > said 2>&1 &
wait_for_text said /
printf '%s\n' conf 'spawn my-true' 'spawn -> /bin/pwd' | (cat; sleep 0.5) | pvm | sed 's/^pvm> //' | sort
(echo halt | pvm) > /dev/null 2>&1
sleep 0.3
