# Consoles on two hosts: each sees the effects of the other's commands.
#@ hosts 1
#@ timeout 40
far() {
    "$PVM_RSH" "$1" pvm 2>&1
}
# hpvm also prints the cause of the error, and advice.
without_cure() {
    sed -E '/^(bravo|nowhere): /d; /^    try: /d'
}
echo "---- before"
(echo "add bravo delta bravo nowhere"; echo conf) | pvm | without_cure
echo "---- from bravo"
printf 'conf\nmstat alfa bravo charlie delta\nadd charlie\nid\n' | far bravo | sed -E 's/^(pvm> )?t8.*/TID/'
echo "---- from alfa"
echo conf | pvm
echo "---- from charlie"
printf 'delete delta nowhere\n' | far charlie
sleep 0.5
echo "---- again"
echo conf | pvm
echo conf | far bravo
echo "---- back again"
printf 'add delta\nconf\n' | far bravo
