# .pvmrc: the console runs its lines first, in order, including invalid ones.
#@ fresh
#@ differs 4.1: unmatched "\ncommand too long => unmatched "
#@ differs 4.1: unmatched '\ncommand too long => unmatched '
console() {
    echo "---- $1"
    pvm 2>&1
    echo "status $?"
}
cat > .pvmrc << 'END'
# A comment, and an empty line.

  echo   words	and   tabs   
bogus
sig
alias hi echo hello
hi there
setenv FROM_RC a  value
setenv FROM_RC
alias quit_early quit
alias loop loop
loop
setopt PvmShowTids 0
getopt PvmShowTids
echo "quoted   words" 'and "these"' with\ a\ blank # and a comment
echo "unmatched
echo 'also unmatched
unalias nothing
export FROM_RC
version extra
help nothing
echo $HOME
END
printf 'hi again\nalias\nsetenv FROM_RC\nexport\ngetopt PvmShowTids\n' | console "order, errors, aliases, variables"
printf 'echo one\nquit\necho two\n' > .pvmrc
echo "echo from the input" | console "quit"
printf 'alias q quit\nq\necho two\n' > .pvmrc
echo "echo from the input" | console "an alias that quits"
printf 'echo first\r\necho second\r\n' > .pvmrc
echo "echo from the input" | console "line ends of another world"
: > .pvmrc
echo "echo from the input" | console "empty"
rm .pvmrc
mkdir .pvmrc
echo "echo from the input" | console "a folder"
rmdir .pvmrc
echo "echo from the input" | console "none"
echo "echo from here" > .pvmrc
mkdir elsewhere
echo "echo from elsewhere" > elsewhere/.pvmrc
echo "echo from the input" | HOME=$PWD/elsewhere console "of another home"
echo "echo from the input" | HOME=$PWD/nowhere console "of no home"
(
    unset HOME
    echo "echo from the input" | console "without HOME"
)
printf 'id\nconf\n' > .pvmrc
console "no input" < /dev/null | grep -c -E '40000|^t4'
