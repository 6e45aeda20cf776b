"""The programs that the package carries: `pvm`, `pvmd`."""
from __future__ import annotations

import os
import sys
from pathlib import Path

#: The directory of the package: `bin` and `lib` lie below it.
HERE = Path(__file__).resolve().parent


def path(name: str) -> Path:
    """Returns the path of a program of the package."""
    return HERE / "bin" / name


def _replace(name: str) -> None:
    program = str(path(name))
    os.execv(program, [program, *sys.argv[1:]])


def pvm() -> None:
    """Becomes the console `pvm`."""
    _replace("pvm")


def pvmd() -> None:
    """Becomes the daemon `pvmd`."""
    _replace("pvmd")
