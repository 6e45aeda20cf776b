"""Messages: objects between Python tasks, typed items between tasks of any language.

>>> import hpvm
>>> hpvm.send(hpvm.mytid(), {"a": [1, 2]}, tag=7)
>>> hpvm.recv(tag=7)
{'a': [1, 2]}
>>> packet = hpvm.Packet().ints(1, 2).doubles(0.5).text("end")
>>> packet.send(hpvm.mytid(), tag=8)
>>> message = hpvm.recv_message(tag=8)
>>> message.ints(2), message.double(), message.text()
([1, 2], 0.5, 'end')
>>> import array
>>> hpvm.psend(hpvm.mytid(), array.array("d", [0.5, 1.5]), tag=9)
>>> into = array.array("d", [0, 0, 0])
>>> hpvm.precv(into, tag=9) == (hpvm.mytid(), 9, 2), into
(True, array('d', [0.5, 1.5, 0.0]))
>>> hpvm.recv(tag=99, timeout=0.01)
Traceback (most recent call last):
...
TimeoutError: no message within 0.01 s
"""
from __future__ import annotations

import array
from typing import Any, Iterable, List, Optional, Union

from . import _hpvm
from ._hpvm import dumps, loads, precv, psend, recv, send
from .errors import check

__all__ = ["Message", "Packet", "dumps", "kind", "loads", "precv", "probe", "psend", "recv", "recv_message", "send"]

#: PVM's number of a type, by the item format of the buffer protocol.
CODES = {
    "b": 1, "B": 1, "c": 1, "?": 1, "h": 2, "i": 3, "f": 4, "Zf": 5, "F": 5, "d": 6, "Zd": 7, "D": 7,
    "l": 8, "q": 8, "H": 9, "I": 10, "L": 11, "Q": 11,
}  # fmt: skip

Tids = Union[int, Iterable[int]]


def recv_message(source: int = -1, tag: int = -1, timeout: Optional[float] = None) -> "Message":
    """Does the same as `recv`, and returns the message: sender, tag, and typed items or an object."""
    found = _hpvm.recv_message(source, tag, timeout)
    if found is None:
        raise TimeoutError(f"no message within {timeout} s")
    return Message(found)


def probe(source: int = -1, tag: int = -1) -> bool:
    """Returns whether a message is there."""
    return check("pvm_probe", _hpvm.probe(source, tag)) > 0


class Message:
    """A received message. Unpack in the order and types of the packing."""

    def __init__(self, raw: _hpvm.Message) -> None:
        self._raw = raw
        #: The sender.
        self.source: int = raw.tid
        self.tag: int = raw.tag
        #: The length of the body in bytes.
        self.nbytes: int = raw.bytes

    def object(self) -> Any:
        """Returns the object of a message that `send` has sent."""
        return loads(self._raw.parts())

    def into(self, data: Any) -> Any:
        """Unpacks items into writable memory, such as a numpy array, until it is full; returns `data`."""
        code, size = kind(data)
        self._raw.unpack_into(code, size, data)
        return data

    def array(self, form: str, count: int) -> "array.array[Any]":
        """Returns `count` items as an `array.array` of this format, such as `"i"` or `"d"`."""
        made: "array.array[Any]" = array.array(form)
        made.frombytes(b"\0" * (made.itemsize * count))
        self.into(made)
        return made

    def ints(self, count: int) -> List[int]:
        """Returns C ints."""
        return self.array("i", count).tolist()

    def int(self) -> int:
        """Returns a C int."""
        return self.ints(1)[0]

    def longs(self, count: int) -> List[int]:  # type: ignore[valid-type]
        """Returns C longs."""
        return self.array("l", count).tolist()

    def doubles(self, count: int) -> List[float]:  # type: ignore[valid-type]
        """Returns C doubles."""
        return self.array("d", count).tolist()

    def double(self) -> float:
        """Returns a C double."""
        return self.doubles(1)[0]

    def bytes(self, count: int) -> bytes:  # type: ignore[valid-type]
        """Returns bytes."""
        return self.array("B", count).tobytes()

    def text(self) -> str:
        """Returns a text that ends with a zero (`pvm_pkstr`)."""
        return self._raw.unpack_text().decode(errors="surrogateescape")


def kind(data: Any) -> "tuple[int, int]":
    """Returns PVM's number of the type of an array's items, and their size in bytes."""
    view = memoryview(data)
    form = (view.format or "B").lstrip("@=<" if view.itemsize == 1 else "@=")
    if form not in CODES:
        raise TypeError(f"PVM has no type for items of the format {view.format!r}")
    return CODES[form], view.itemsize


class Packet:
    """A message of typed items, which a task in C or Fortran can unpack. Each method returns the packet.

    `encoding`: 0 readable on every host, 1 native bytes.
    """

    def __init__(self, encoding: int = 0) -> None:
        self._raw = _hpvm.Packet(encoding)

    def add(self, data: Any) -> "Packet":
        """Packs the items of an array (numpy, array.array, bytes ...) with their own type."""
        code, size = kind(data)
        self._raw.pack(code, size, data)
        return self

    def ints(self, *values: int) -> "Packet":
        """Packs C ints."""
        return self.add(array.array("i", values))

    def longs(self, *values: int) -> "Packet":
        """Packs C longs."""
        return self.add(array.array("l", values))

    def doubles(self, *values: float) -> "Packet":
        """Packs C doubles."""
        return self.add(array.array("d", values))

    def text(self, value: str) -> "Packet":
        """Packs a text as `pvm_pkstr` does."""
        self._raw.pack_text(value)
        return self

    def send(self, to: Tids, tag: int = 0) -> None:
        """Sends the message to a task, or to several."""
        self._raw.send([to] if isinstance(to, int) else list(to), tag)

    def bcast(self, group: str, tag: int = 0) -> None:
        """Sends the message to the other members of a group."""
        self._raw.bcast(group, tag)
