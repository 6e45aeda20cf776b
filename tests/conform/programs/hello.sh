# hello.pvm spawns hello_other.
#@ needs /usr/bin/hello.pvm
#@ fresh
/usr/bin/hello.pvm
