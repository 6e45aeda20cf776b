#!/bin/sh
# Installs or uninstalls hpvm for `make`.
#
#   dist/install.sh install PREFIX [--libdir DIRECTORY]
#   dist/install.sh uninstall PREFIX
#   dist/install.sh install-python DIRECTORY --rpath DIRECTORY
#
# The owner of the source tree builds first what has changed. Another user who is root (sudo) installs what the owner
# has built: cargo would otherwise compile everything again, and leave files of root in the tree.
set -eu

if [ "$(id -u)" -ne 0 ] || [ "$(stat -c %u Makefile)" -eq 0 ]; then
    if [ "$1" = install ]; then
        shift
        dist/bootstrap.sh xtask setup build
        exec dist/bootstrap.sh xtask install --build "$@"
    fi
    if [ "$1" = install-python ]; then
        dist/bootstrap.sh xtask setup build
        dist/bootstrap.sh xtask build
    fi
    exec dist/bootstrap.sh xtask "$@"
fi

note=target/built
program=$(cat "$note" 2>/dev/null) || program=
if [ ! -x "$program" ]; then
    echo "hpvm is not built yet: run make, without sudo, and then this command again" >&2
    exit 1
fi
if [ "$1" = install ]; then
    # The time of the last change of a file's attributes: a file that was unpacked or copied may have an old date.
    newer=$(find Cargo.toml Cargo.lock .cargo bench crates dist include man xtask -cnewer "$note" -print -quit)
    if [ -n "$newer" ]; then
        echo "$newer has changed since hpvm was built: run make, without sudo, and then this command again" >&2
        exit 1
    fi
fi
if [ "$1" = install-python ]; then
    set -- "$@" --as-it-is
fi
exec "$program" "$@"
