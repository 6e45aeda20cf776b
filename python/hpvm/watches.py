"""Events of the machine: tasks end, hosts leave and join. As an iterator, or by a callback.

>>> import hpvm
>>> [tid] = hpvm.python("pass")
>>> with hpvm.watch_exit([tid]) as ends:
...     next(ends) == tid
True
"""
from __future__ import annotations

import threading
from typing import Callable, Iterable, Iterator, List, Optional

from . import _hpvm
from .errors import check
from .messages import Message

_TASK_EXIT, _HOST_DELETE, _HOST_ADD = 1, 2, 3
_STOP_TAG = 2


class Watch(Iterator[int]):
    """The events of one request, each a tid. Ends after the last event that can come, if their number is known.

    The events arrive in a context of their own, so no receive of the program takes them.
    """

    def __init__(self, what: int, tids: Iterable[int], callback: Optional[Callable[[int], None]] = None) -> None:
        self._tids = list(tids)
        self._left: Optional[int] = len(self._tids) if what != _HOST_ADD else None
        self._queue: List[int] = []
        self._thread: Optional[threading.Thread] = None
        self._me = check("pvm_mytid", _hpvm.mytid())
        self._is_open = True
        self._context = check("pvm_newcontext", _hpvm.newcontext())
        if what == _HOST_ADD or self._tids:
            _hpvm.notify(what, 1, self._tids, -1, self._context)
        if callback:
            _hpvm.share()
            self._thread = threading.Thread(target=self._call, args=(callback,), daemon=True, name="hpvm-watch")
            self._thread.start()

    def wait(self, timeout: Optional[float] = None) -> Optional[int]:
        """Returns the next event; None after `timeout` seconds, or if no more can come."""
        if self._queue:
            return self._queue.pop(0)
        if self._left == 0 or not self._is_open:
            return None
        found = _hpvm.recv_message(-1, -1, timeout, self._context)
        if found is None or found.tag == _STOP_TAG:
            return None
        message = Message(found)
        count = 1 if self._left is not None else message.int()
        self._queue = message.ints(count)
        if self._left is not None:
            self._left -= 1
        return self._queue.pop(0)

    def __next__(self) -> int:
        event = self.wait()
        if event is None:
            raise StopIteration
        return event

    def _call(self, callback: Callable[[int], None]) -> None:
        for event in self:
            callback(event)

    def close(self) -> None:
        """Ends the watch: no callback runs afterwards."""
        if not self._is_open:
            return
        self._is_open = False
        if self._thread and self._thread is not threading.current_thread():
            _hpvm.send_object([self._me], _STOP_TAG, [b""], self._context)
            self._thread.join()
        _hpvm.freecontext(self._context)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def watch_exit(tids: Iterable[int], callback: Optional[Callable[[int], None]] = None) -> Watch:
    """Watches the end of tasks. With a callback, a thread calls it with the tid of each task that ends."""
    return Watch(_TASK_EXIT, tids, callback)


def watch_hosts_lost(tids: Iterable[int], callback: Optional[Callable[[int], None]] = None) -> Watch:
    """Watches hosts (by tid) that leave the machine or fail."""
    return Watch(_HOST_DELETE, tids, callback)


def watch_hosts_added(callback: Optional[Callable[[int], None]] = None) -> Watch:
    """Watches hosts that join the machine."""
    return Watch(_HOST_ADD, [], callback)
