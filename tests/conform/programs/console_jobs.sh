# The console's spawn in all its forms, jobs and their output.
#@ fresh
#@ unordered
#@ needs $DEBIAN_PVM/bin/hello_other
cat > sayer <<'S'
#!/bin/sh
sleep 0.3
echo "words: $*"
echo "to stderr" >&2
S
chmod +x sayer
(
    echo "spawn -> sayer one two"
    sleep 1
    echo "spawn -2 -> sayer"
    sleep 1
    echo "spawn ->file sayer to a file"
    sleep 1
    echo "spawn sayer nowhere"
    sleep 0.6
    echo "jobs"
) | pvm | sed -E 's/pvm> //g; s/^(\[[0-9]+\]) ?$/\1/; /^(\[[0-9]+\]|)$/d; s/^(\[[0-9]+\]) spawn/spawn/'
cat file
