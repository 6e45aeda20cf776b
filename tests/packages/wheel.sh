#!/bin/sh
# Installs the wheel in /build in a fresh system that has Python and pip and no network, and runs its demo. `cargo xtask
# packages` runs this.
set -eu
cd /build
# Newer versions of pip want to hear that the system's Python is meant.
break=
pip3 install --help | grep -q break-system-packages && break=--break-system-packages
pip3 install --no-index $break /build/hpvm-*.whl
cd /root
PVM_ALLOW_ROOT=1 timeout 120 python3 -m hpvm.demo
