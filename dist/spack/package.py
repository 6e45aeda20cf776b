# SPDX-License-Identifier: Apache-2.0
"""The recipe of hpvm for Spack; docs/packaging.md tells how to use it."""

import os

from spack_repo.builtin.build_systems.generic import Package

from spack.package import *


class Hpvm(Package):
    """hpvm is a drop-in successor of PVM 3.4.6, the Parallel Virtual Machine: messages between the tasks of a parallel
    program, on one host or many. Programs for PVM run unchanged."""

    # The source tarball has no address of its own: it lies beside this file.
    url = "file://" + os.path.join(os.path.dirname(os.path.abspath(__file__)), "hpvm-0.1.0.tar.gz")

    license("Apache-2.0")

    # `cargo xtask release` writes this recipe with the checksum of its tarball.
    version("0.1.0")

    variant("python", default=False, description="the package for Python 3.9 and later, with its demo")

    depends_on("c", type="build")
    depends_on("rust@1.85:", type="build")
    # The hosts of a machine are added by a login without a password.
    depends_on("openssh", type="run")
    # The module is not linked to an interpreter: one build serves every version.
    depends_on("python@3.9:", type="run", when="+python")

    conflicts("platform=darwin", msg="hpvm uses what only Linux has")
    conflicts("platform=windows", msg="hpvm uses what only Linux has")

    def setup_build_environment(self, env: EnvironmentModifications) -> None:
        # The tarball has all crates.
        env.set("CARGO_NET_OFFLINE", "true")
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))

    def setup_run_environment(self, env: EnvironmentModifications) -> None:
        env.set("PVM_ROOT", self.prefix.lib.pvm3)
        if self.spec.satisfies("+python"):
            env.prepend_path("PYTHONPATH", self.prefix.lib.python)

    def install(self, spec: Spec, prefix: Prefix) -> None:
        # Not `make install`, which would look for missing packages of the system.
        cargo = which("cargo", required=True)
        cargo("xtask", "build")
        cargo("xtask", "install", prefix)
        if spec.satisfies("+python"):
            cargo("xtask", "install-python", prefix.lib.python, "--rpath", prefix.lib)
