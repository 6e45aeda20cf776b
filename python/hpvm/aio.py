"""Messages in asyncio programs: a coroutine waits, the event loop goes on.

>>> import asyncio, hpvm, hpvm.aio
>>> async def main():
...     waiting = asyncio.ensure_future(hpvm.aio.recv(tag=5))
...     await asyncio.sleep(0)
...     hpvm.send(hpvm.mytid(), "hello", tag=5)
...     return await waiting
>>> asyncio.run(main())
'hello'
"""
from __future__ import annotations

import asyncio
from typing import Any, Optional

from . import _hpvm, machine
from .messages import Message


class _Loop:
    """Receives for all coroutines of an event loop while at least one waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waiting: "list[tuple[int, int, asyncio.Future[Message]]]" = []
        self.event = -1

    def begin(self) -> None:
        machine.mytid()
        self.event = _hpvm.add_event()
        self.loop.add_reader(_hpvm.descriptor(), self.look)
        self.loop.add_reader(self.event, self.look)

    def end(self) -> None:
        if self.event < 0:
            return
        self.loop.remove_reader(_hpvm.descriptor())
        self.loop.remove_reader(self.event)
        _hpvm.remove_event(self.event)
        self.event = -1

    def look(self) -> None:
        _hpvm.silence(self.event)
        for entry in list(self.waiting):
            source, tag, future = entry
            if future.done():
                continue
            try:
                found = _hpvm.look(self.event, source, tag, None)
                if found is not None:
                    future.set_result(Message(found))
            except Exception as error:
                future.set_exception(error)
        self.waiting = [entry for entry in self.waiting if not entry[2].done()]
        if not self.waiting:
            self.end()

    async def recv(self, source: int, tag: int) -> Message:
        future: "asyncio.Future[Message]" = self.loop.create_future()
        self.waiting.append((source, tag, future))
        if self.event < 0:
            self.begin()
        self.look()
        try:
            return await future
        finally:
            self.waiting = [entry for entry in self.waiting if entry[2] is not future]
            if not self.waiting:
                self.end()


async def recv_message(source: int = -1, tag: int = -1, timeout: Optional[float] = None) -> Message:
    """Waits for a message; -1 matches every sender or tag. Raises `asyncio.TimeoutError` after `timeout` seconds."""
    loop = asyncio.get_running_loop()
    ours = loop.__dict__.setdefault("_hpvm", None) or _Loop(loop)
    loop._hpvm = ours  # type: ignore[attr-defined]
    try:
        return await asyncio.wait_for(ours.recv(source, tag), timeout)
    except asyncio.TimeoutError:
        raise asyncio.TimeoutError(f"no message within {timeout} s") from None


async def recv(source: int = -1, tag: int = -1, timeout: Optional[float] = None) -> Any:
    """Waits for an object."""
    return (await recv_message(source, tag, timeout)).object()
