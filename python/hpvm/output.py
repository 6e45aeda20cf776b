"""What workers print."""
from __future__ import annotations

import sys
import threading
import traceback
from contextlib import contextmanager
from typing import Callable, Dict, Iterable, Iterator, Set, Union

from . import _hpvm

#: The options of `pvm_setopt` by which spawned tasks learn where their output goes.
_OUTPUT_TID, _OUTPUT_CODE, _OUTPUT_CONTEXT = 4, 5, 21
#: The bytes of an integer in a message about output.
_INT_BYTES = 4
#: One thread at a time changes the options.
_options = threading.Lock()

#: Where output goes: "tag" and "plain" to the standard output, with the worker's tid before each line or without it, "log" to the
#: daemon's log; a function is called with the tid and the line.
Where = Union[str, Callable[[int, str], object]]


class Output:
    """Puts lines together, and shows them."""

    def __init__(self, where: Where) -> None:
        if not callable(where) and where not in ("tag", "plain", "log"):
            raise ValueError(f"output is 'tag', 'plain', 'log' or a function of tid and line, not {where!r}")
        self._where = where
        self._lines: Dict[int, bytearray] = {}
        self._ended: Set[int] = set()

    @contextmanager
    def collected(self, tid: int, code: int, context: int) -> Iterator[None]:
        """Tasks that are spawned meanwhile send what they print to this task."""
        if self._where == "log":
            yield
            return
        with _options:
            before = [(option, _hpvm.setopt(option, value)) for option, value in (
                (_OUTPUT_TID, tid), (_OUTPUT_CODE, code), (_OUTPUT_CONTEXT, context))]  # fmt: skip
            try:
                yield
            finally:
                for option, value in reversed(before):
                    _hpvm.setopt(option, value)

    def take(self, message: "_hpvm.Message") -> None:
        """Takes a message about the output of a task."""
        head = bytearray(2 * _INT_BYTES)
        message.unpack_into(3, _INT_BYTES, head)
        tid, length = (
            int.from_bytes(head[at : at + _INT_BYTES], sys.byteorder, signed=True) for at in (0, _INT_BYTES)
        )
        if length > 0:
            body = bytearray(length)
            message.unpack_into(1, 1, body)
            *whole, rest = (self._lines.pop(tid, bytearray()) + body).split(b"\n")
            self._lines[tid] = rest
            for line in whole:
                self._show(tid, line)
        elif length == 0:
            rest = self._lines.pop(tid, bytearray())
            if rest:
                self._show(tid, rest)
            self._ended.add(tid)

    def has_ended(self, tids: Iterable[int]) -> bool:
        """Returns whether these tasks will print no more."""
        return self._where == "log" or self._ended.issuperset(tids)

    def _show(self, tid: int, line: Union[bytes, bytearray]) -> None:
        text = line.decode(errors="replace")
        try:
            if callable(self._where):
                self._where(tid, text)
            else:
                print(f"[t{tid:x}] {text}" if self._where == "tag" else text, flush=True)
        except Exception:
            # The jobs do not depend on it.
            traceback.print_exc()
