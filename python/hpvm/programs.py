"""The programs `pvm` and `pvmd`: those that the wheel carries, or those of an installation."""
from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

#: The directory of the package; a wheel has `bin` and `lib` below it.
HERE = Path(__file__).resolve().parent


def path(name: str) -> Path:
    """Returns the path of a program: of the wheel, otherwise the first one of that name in `PATH`."""
    own = HERE / "bin" / name
    found = None if own.exists() else shutil.which(name)
    return Path(found) if found else own


def _replace(name: str) -> None:
    program = str(path(name))
    os.execv(program, [program, *sys.argv[1:]])


def pvm() -> None:
    """Becomes the console `pvm`."""
    _replace("pvm")


def pvmd() -> None:
    """Becomes the daemon `pvmd`."""
    _replace("pvmd")
