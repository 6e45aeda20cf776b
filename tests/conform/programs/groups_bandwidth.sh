# The four programs that measure bandwidth: two processes of each find each other through a group.
#@ needs $DEBIAN_PVM/bin/dbwtest
#@ fresh
#@ timeout 60
#@ unordered
for program in dbwtest ibwtest rbwtest pbwtest; do
    $DEBIAN_PVM/bin/$program > first 2>&1 &
    $DEBIAN_PVM/bin/$program > second 2>&1
    wait
    cat first second | sed -nE "s/^t[0-9a-f]+: (.*correctly)/$program: \1/p; s/.*(error|Error).*/$program: &/p"
done
