# hello.pvm spawns hello_other.
#@ runs hello_other
#@ needs /usr/bin/hello.pvm
#@ fresh
/usr/bin/hello.pvm
