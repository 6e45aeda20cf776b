# SPDX-License-Identifier: Apache-2.0
"""The recipe of hpvm for Spack; docs/packaging.md tells how to use it."""

from spack.package import *
try:  # Spack 1.0 and later
    from spack_repo.builtin.build_systems.generic import Package
except ImportError:
    pass


class Hpvm(Package):
    """hpvm is a drop-in successor of PVM 3.4.6, the Parallel Virtual Machine: messages between the tasks of a parallel
    program, on one host or many. Programs for PVM run unchanged."""

    # The source tarball has no address yet: a mirror has it, or `spack develop` a clone.
    url = "file:///usr/src/hpvm-0.1.0.tar.gz"

    license("Apache-2.0")

    # `cargo xtask release` writes this recipe with the checksum of its tarball.
    version("0.1.0")

    depends_on("c", type="build")
    depends_on("rust@1.85:", type="build")
    depends_on("gmake", type="build")
    # A login without a password between the hosts of a machine.
    depends_on("openssh", type="run")

    # PVM has programs and headers of the same names.
    conflicts("platform=darwin", msg="hpvm uses what only Linux has")
    conflicts("platform=windows", msg="hpvm uses what only Linux has")

    def setup_build_environment(self, env):
        # The tarball has all crates.
        env.set("CARGO_NET_OFFLINE", "true")
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))

    def setup_run_environment(self, env):
        env.set("PVM_ROOT", self.prefix.lib.pvm3)

    def install(self, spec, prefix):
        # Not `make install`: it would look for missing Debian packages.
        cargo = which("cargo", required=True)
        cargo("xtask", "build")
        cargo("xtask", "install", prefix)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(self.prefix.bin.pvmgetarch)()
