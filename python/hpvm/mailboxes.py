"""Mailboxes: entries under a name that every task of the machine can read.

>>> import hpvm
>>> hpvm.put("config", {"steps": 3})
0
>>> hpvm.get("config")
{'steps': 3}
>>> hpvm.mailboxes()["config"] == [(0, hpvm.mytid())]
True
>>> hpvm.remove("config")
"""
from __future__ import annotations

from typing import Any, Dict, List, Tuple

from . import _hpvm
from .errors import check, error
from .messages import Message, dumps

PERSISTENT, MULTI, OVERWRITABLE, FIRST, DELETE = 1, 2, 4, 8, 16


def put(name: str, value: Any, persistent: bool = False, multi: bool = False, overwritable: bool = False) -> int:
    """Puts an object under a name; returns the index of the entry.

    A persistent entry outlives this task; `multi` allows several entries under the name; an overwritable entry can be
    replaced and deleted by others.
    """
    flags = PERSISTENT * persistent | MULTI * multi | OVERWRITABLE * overwritable
    return _hpvm.put_object(name, flags, dumps(value))


def get_message(name: str, index: int = 0, delete: bool = False) -> Message:
    """Returns the entry as a message, such as one that a task in C has put."""
    flags = DELETE * delete
    found = _hpvm.recvinfo(name, index, flags)
    if found is None:
        raise error("pvm_recvinfo", -32, name)
    return Message(found)


def get(name: str, index: int = 0, delete: bool = False) -> Any:
    """Returns the object under a name; raises `PvmError` (PvmNotFound) if there is none."""
    return get_message(name, index, delete).object()


def remove(name: str, index: int = 0) -> None:
    """Deletes an entry."""
    check("pvm_delinfo", _hpvm.delinfo(name, index, 0), name)


def mailboxes(pattern: str = "") -> Dict[str, List[Tuple[int, int]]]:
    """Returns, for each name, the index and the owner of each entry."""
    found = _hpvm.mailboxes(pattern)
    return {name: [(index, owner) for index, owner, _ in entries] for name, entries in found}
