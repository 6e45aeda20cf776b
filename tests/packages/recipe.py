"""Runs the Spack recipe without Spack: recipe.py RECIPE PREFIX WORK [VARIANT]...

Defines for the recipe the names of `spack.package` that it uses, with their meaning for one installation: directives are
recorded, and `which` runs the program. Fails if the recipe uses a name that is unknown here.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import types

recipe, prefix, work, *variants = sys.argv[1:]
directives = []


class Prefix(str):
    def __getattr__(self, name):
        return Prefix(os.path.join(self, name))


class Environment:
    def set(self, name, value):
        os.environ[name] = value

    def prepend_path(self, name, directory):
        os.environ[name] = os.pathsep.join(filter(None, [directory, os.environ.get(name)]))


class Stage:
    path = work


class Spec:
    def satisfies(self, condition):
        known = ["+" + arguments[0] for name, arguments, _ in directives if name == "variant"]
        assert condition in known, condition
        return condition[1:] in variants


class Package:
    stage = Stage()
    prefix = Prefix(prefix)
    spec = Spec()


def directive(name):
    def record(*arguments, **options):
        directives.append((name, arguments, options))

    return record


def which(program, required=False):
    path = shutil.which(program)
    assert path or not required, program + " is missing"

    def run(*arguments):
        subprocess.run([path, *map(str, arguments)], check=True)

    return run


def module(name, **contents):
    made = types.ModuleType(name)
    made.__dict__.update(contents)
    sys.modules[name] = made


for name in ["spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"]:
    module(name)
module("spack_repo.builtin.build_systems.generic", Package=Package)
names = {name: directive(name) for name in ["license", "version", "variant", "depends_on", "conflicts"]}
module(
    "spack.package",
    EnvironmentModifications=Environment,
    Prefix=Prefix,
    Spec=Spec,
    join_path=os.path.join,
    which=which,
    **names,
)

sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("recipe", recipe)
loaded = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loaded)
package = loaded.Hpvm()

used = {name for name, _, _ in directives}
assert used == set(names), used
assert any(arguments[0].startswith("rust@1.85") for name, arguments, _ in directives if name == "depends_on")
package.setup_build_environment(Environment())
assert os.environ["CARGO_NET_OFFLINE"] == "true"
# The crates of a clone are in the home of whoever tests, and not in the tarball.
if not os.path.isdir("vendor"):
    del os.environ["CARGO_HOME"]
package.install(package.spec, package.prefix)
package.setup_run_environment(Environment())
assert os.path.isdir(os.environ["PVM_ROOT"]), os.environ["PVM_ROOT"]
if "python" in variants:
    program = "import os, hpvm; print(os.path.dirname(hpvm.__file__))"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()
    assert found == os.path.join(prefix, "lib", "python", "hpvm"), found
