# aimk: the directory in which it runs make, and the arguments that it passes to make.
#@ nodaemon
#@ needs $DEBIAN_PVM/bin/aimk
#@ no-space the aimk of PVM 3.4.6 does not find its folder
unset PVM_ARCH
mkdir -p one/LINUX64 two three bad
cat > one/LINUX64/Makefile << 'END'
all:
	@echo "all in $(notdir $(CURDIR)) for $(PVM_ARCH), $(X)"
other:
	@echo "other"; exit 3
END
cp one/LINUX64/Makefile one/Makefile
cat > two/Makefile.aimk << 'END'
all:
	@echo "from $(notdir $(AIMK_SRC)) in $(notdir $(CURDIR)) for $(PVM_ARCH)"
	@echo "$(AR) $(HASRANLIB) [$(ARCHLIB)] [$(ARCHDLIB)] $(X)"
	@test -f $(PVM_ROOT)/conf/$(PVM_ARCH).def && echo settings
	@test -x $(PVM_ROOT)/lib/pvmd && echo daemon
END
cp one/Makefile three
echo '-- a makefile for this kind of machine'
(cd one && aimk)
(cd one && aimk X='two words' all)
(cd one && aimk other 2> /dev/null; echo "status $?")
echo '-- here all the same'
(cd one && aimk -here X=3)
(cd one && aimk -here -here)
echo '-- one for all kinds'
(cd two && aimk X=4)
(cd two && aimk -here 2> /dev/null; echo "status $?")
(cd two && aimk nothing 2> /dev/null; echo "status $?")
echo '-- a makefile without more'
(cd three && aimk && aimk -s X=5)
echo "-- an unknown kind of machine"
(cd two && PVM_ARCH=UNKNOWN aimk)
echo '-- no makefile'
(cd bad && aimk > /dev/null 2>&1; echo "status $?")
(cd bad && PVM_ROOT=/nonexistent aimk 2> /dev/null; echo "status $?")
