"""What a worker of `Pool` and `Executor` runs."""
from __future__ import annotations

import pickle
import struct
import time
from typing import Any, Optional

from . import _hpvm
from .calls import pack_error, pack_result
from .errors import check
from .messages import loads

#: Tags between a crew and its workers, in the crew's context.
SETUP, JOB, RESULT, EXIT, STOP, READY, OUTPUT = 1, 2, 3, 4, 5, 6, 7
#: Before a result: the number of the job, whether it succeeded, and the seconds it took.
HEAD = struct.Struct("<q?d")


def _answer(number: int, job: Any, broken: Optional[BaseException]) -> None:
    began = time.perf_counter()
    try:
        if broken:
            raise broken
        function, arguments, named = loads(job)
        ok, parts = True, pack_result(function(*arguments, **named))
    except Exception as error:
        ok, parts = False, pack_error(error)
    _hpvm.send_object([_parent], RESULT, [HEAD.pack(number, ok, time.perf_counter() - began), *parts], _context)


def main(context: int) -> None:
    """Does jobs until the crew ends."""
    global _parent, _context
    _parent, _context = check("pvm_parent", _hpvm.parent()), context
    _hpvm.notify(1, EXIT, [_parent], -1, context)
    broken: Optional[BaseException] = None
    while True:
        message = _hpvm.recv_message(-1, -1, None, context)
        # Without a time limit, there is always a message.
        if message is None or message.tag in (EXIT, STOP):
            return
        parts = message.parts()
        if message.tag == SETUP:
            try:
                from multiprocessing import spawn

                spawn.prepare(pickle.loads(parts[0]))
                if len(parts) > 1:
                    function, arguments, named = loads(parts[1:])
                    function(*arguments, **named)
            except Exception as error:
                broken = error
            _hpvm.send_object([_parent], READY, [b""], context)
        else:
            _answer(int.from_bytes(parts[0], "little"), parts[1:], broken)


_parent = _context = 0
