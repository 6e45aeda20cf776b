# The door for people who just want to use hpvm. Every command is a `cargo xtask` command;
# dist/bootstrap.sh finds cargo, or gets it from Debian where there is none.
CARGO = dist/bootstrap.sh
PREFIX = /usr/local
# Where libraries go below PREFIX: lib/x86_64-linux-gnu on Debian, lib64 on Fedora.
LIBDIR = lib

ifneq (,$(findstring ',$(PREFIX)$(LIBDIR)$(DESTDIR)))
$(error PREFIX, LIBDIR and DESTDIR must not contain an apostrophe)
endif

all: build

help:
	@echo 'make                      build: what is to be installed lies in target/dist then'
	@echo 'make demo                 a farm of tasks here, and over hosts that are lost; how fast messages are'
	@echo 'make test                 the tests that find most mistakes'
	@echo 'make test-all             every test'
	@echo 'make bench                the speed beside PVM 3.4.6 and several MPIs'
	@echo 'make papers               the experiments of the papers, as a report in target/papers'
	@echo 'make install PREFIX=DIR   install to DIR ($(PREFIX)); DESTDIR and LIBDIR (lib) are honoured'
	@echo 'make uninstall PREFIX=DIR remove from DIR exactly what was installed there'
	@echo 'make install-python ...   the Python package as well, in PREFIX/LIBDIR/python, by cargo alone'
	@echo 'make python PREFIX=DIR    build that package only, for a later sudo make install-python PREFIX=DIR'
	@echo 'make dist                 the source tarball, which builds without a network, in target/packages'
	@echo 'make wheel                the Python package, in target/python/wheels'
	@echo 'make clean                remove everything that was built'
	@echo 'dist/bootstrap.sh xtask   the commands for developers'

build:
	@$(CARGO) xtask setup build
	@$(CARGO) xtask build

demo:
	@[ -e target/dist ] || echo 'The first time, this compiles for 3 to 10 minutes and needs 2 GB of disk space in target.'
	@$(CARGO) xtask setup build
	@$(CARGO) xtask demo

# Whoever runs every test once needs nothing of what would make a second compilation faster: a fifth of the disk space.
test test-all: export CARGO_INCREMENTAL = 0
test:
	@$(CARGO) xtask setup test
	@$(CARGO) xtask test

test-all:
	@$(CARGO) xtask setup test
	@$(CARGO) xtask test --all

bench:
	@$(CARGO) xtask setup bench
	@$(CARGO) xtask bench

papers:
	@$(CARGO) xtask setup bench
	@$(CARGO) xtask papers

install:
	@DESTDIR='$(DESTDIR)' dist/install.sh install '$(PREFIX)' --libdir '$(LIBDIR)'

uninstall:
	@DESTDIR='$(DESTDIR)' dist/install.sh uninstall '$(PREFIX)'

python: build
	@$(CARGO) xtask install-python '$(PREFIX)/$(LIBDIR)/python' --rpath '$(PREFIX)/$(LIBDIR)' --build-only

install-python:
	@DESTDIR='$(DESTDIR)' dist/install.sh install-python '$(PREFIX)/$(LIBDIR)/python' --rpath '$(PREFIX)/$(LIBDIR)'

dist:
	@$(CARGO) xtask dist-tarball

wheel:
	@$(CARGO) xtask setup build wheel
	@$(CARGO) xtask wheel

clean:
	@$(CARGO) clean
	@rm -rf target

.PHONY: all help build demo test test-all bench papers install uninstall python install-python dist wheel clean
