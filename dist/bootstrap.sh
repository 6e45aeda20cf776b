#!/bin/sh
# Runs cargo with the given arguments, and first gets a usable one where the machine has none.
#
#   dist/bootstrap.sh xtask test
#
# Usable is cargo 1.85 or later with a C compiler to link with. On Debian the packages cargo-web
# and rustc-web have one (the package cargo of Debian 12 is too old). Everything else that the
# project needs is installed by `cargo xtask setup`, which this makes possible.
set -eu

minor_min=85

# Whether "$1" is cargo 1.85 or later.
usable() {
    version=$("$1" --version 2>/dev/null) || return 1
    version=${version#cargo }
    major=${version%%.*}
    minor=${version#*.}
    minor=${minor%%.*}
    case $major$minor in *[!0-9]* | '') return 1 ;; esac
    [ "$major" -gt 1 ] || { [ "$major" -eq 1 ] && [ "$minor" -ge "$minor_min" ]; }
}

find_cargo() {
    for candidate in "${CARGO:-}" cargo "${CARGO_HOME:-${HOME:-/}/.cargo}/bin/cargo" /usr/bin/cargo; do
        if [ -n "$candidate" ] && usable "$candidate"; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

# Installs Debian packages.
install() {
    if ! command -v apt-get >/dev/null; then
        echo "hpvm needs: $* (no apt-get here: please install the like by hand)" >&2
        exit 1
    fi
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        # sudo asks for a password on the terminal.
        if ! command -v sudo >/dev/null || ! sudo true 2>/dev/null; then
            echo "packages are missing; ask your administrator for: apt-get install $*" >&2
            case $* in *cargo*) echo "(cargo can also be had without an administrator: https://rustup.rs)" >&2 ;; esac
            exit 1
        fi
        as_root="sudo"
    fi
    echo "installing $*" >&2
    # The list of packages of a fresh machine is empty or old.
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update >&2
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$@" >&2
}

lacking=
command -v cc >/dev/null || lacking="$lacking gcc"
[ -e /usr/include/stdio.h ] || lacking="$lacking libc6-dev"
cargo=$(find_cargo) || lacking="$lacking cargo-web rustc-web ca-certificates"
if [ -n "$lacking" ]; then
    # shellcheck disable=SC2086 # one word a package
    install $lacking
    cargo=$(find_cargo) || {
        echo "hpvm needs cargo 1.$minor_min or later (https://rustup.rs), and found none" >&2
        exit 1
    }
fi

# So that rustc is found beside a cargo that is not in PATH.
case $cargo in
    */*) PATH=$(dirname "$cargo"):$PATH && export PATH ;;
esac
if [ "${1-}" = xtask ] && [ ! -e "${CARGO_TARGET_DIR:-target}/debug/xtask" ]; then
    # A minute without a word looks like a fault.
    echo "building the commands of the source tree (about a minute, once)" >&2
    "$cargo" build --quiet --package xtask || {
        if ! "$cargo" metadata --locked --offline --format-version 1 >/dev/null 2>&1; then
            echo "the crates that hpvm needs cannot be had; without a network, use the source tarball, which has them:" >&2
            echo "\`make dist\` makes it on a computer with a network, in target/packages" >&2
        fi
        exit 1
    }
fi
exec "$cargo" "$@"
