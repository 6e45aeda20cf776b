#!/bin/sh
# Builds hpvm from its source tarball in /build, in a fresh Debian system without a network: by `make install`, as any
# packager would, then the Debian packages, which lintian checks. `cargo xtask packages` runs this.
set -eu
version=$1
cd /build
export RUSTFLAGS="--remap-path-prefix=/build/hpvm-$version=/usr/src/hpvm"
export CARGO_INCREMENTAL=0

cp "hpvm-$version.tar.gz" "hpvm_3.4.6+hpvm$version.orig.tar.gz"
tar xzf "hpvm-$version.tar.gz"
cd "hpvm-$version"
# The flags are those of dpkg-buildpackage, so that the second build finds everything compiled. They name this directory.
eval "$(dpkg-buildflags --export=sh)"
echo '== source package'
dpkg-buildpackage --build=source --no-check-builddeps --no-pre-clean -us -uc

echo '== make install, make uninstall'
make install PREFIX=/opt/hpvm
PVM_ALLOW_ROOT=1 timeout 60 /opt/hpvm/bin/pvm run -n 2 sh -c 'echo a task of the installation' | tee /build/said
[ "$(grep -c 'a task of the installation' /build/said)" = 2 ]
echo '== make install-python'
make install-python PREFIX=/opt/hpvm
PATH=/opt/hpvm/bin:$PATH PYTHONPATH=/opt/hpvm/lib/python PVM_ALLOW_ROOT=1 timeout 120 python3 -m hpvm.demo
rm -r /opt/hpvm/lib/python
make uninstall PREFIX=/opt/hpvm
[ ! -e /opt/hpvm ]

echo '== binary packages'
dpkg-buildpackage --build=binary --no-pre-clean -us -uc
cd ..
echo '== lintian'
lintian --allow-root --fail-on error --info ./*.changes
