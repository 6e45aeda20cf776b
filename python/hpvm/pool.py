"""Pools of workers: functions mapped over many items, as with `multiprocessing`.

>>> import hpvm
>>> with hpvm.Pool(2) as pool:
...     pool.map(abs, [-1, 2, -3])
[1, 2, 3]
>>> with hpvm.Pool(2) as pool:
...     pool.apply_async(pow, (2, 10)).get()
1024
"""
from __future__ import annotations

import concurrent.futures
import multiprocessing
import queue
import sys
import threading
import time
from math import ceil
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Protocol, Tuple

from .executor import CREDIT, Call, ChunkLost, Executor, Job
from .output import Where

#: The time that a chunk of `Pool.map` should take, in seconds. Somebody waits for the first results of `imap`.
MAP_CHUNK_SECONDS, IMAP_CHUNK_SECONDS = 0.5, 0.02
#: The least time of a chunk; more workers would not end earlier by smaller ones.
CHUNK_SECONDS_MIN = 0.004
#: How many chunks a worker has at once: one in work, and the next one.
CHUNK_CREDIT = 2
#: The items that are left make at least this number of chunks, times the chunks that are out at once. So a worker that
#: has half the speed of the others ends with them.
CHUNK_PARTS = 1.5
#: The least time of an item that is believed, in seconds.
ITEM_SECONDS_MIN = 1e-7


def chunk_of(function: Callable[..., Any], items: List[Any], star: bool) -> Tuple[Call, Call]:
    """Returns the call that a worker does for these items, and what it is about: of one item, the call of the function."""
    first = (tuple(items[0]) if star else (items[0],)) if len(items) == 1 else (items,)
    return (_run, (function, items, star), {}), (function, first, {})


def _run(function: Callable[..., Any], items: List[Any], star: bool) -> List[Any]:
    return [function(*item) for item in items] if star else [function(item) for item in items]


class Retried:
    """A function that is called again when it fails, so many times."""

    def __init__(self, function: Callable[..., Any], retries: int) -> None:
        self.function, self.retries = function, retries
        self.__qualname__ = getattr(function, "__qualname__", repr(function))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for _ in range(self.retries):
            try:
                return self.function(*args, **kwargs)
            except Exception:
                continue
        return self.function(*args, **kwargs)


class _Progress:
    """Shows how many items are done: by tqdm if it is installed, else in a line on a terminal."""

    def __init__(self, total: int, is_wanted: bool) -> None:
        self._total, self._done, self._began, self._told = total, 0, time.monotonic(), 0.0
        self._bar: Any = None
        self._is_shown = is_wanted and sys.stderr.isatty()
        if is_wanted:
            try:
                from tqdm.auto import tqdm  # type: ignore[import-not-found, import-untyped, unused-ignore]

                self._bar, self._is_shown = tqdm(total=total), False
            except ImportError:
                pass

    def add(self, count: int) -> None:
        """Counts items that are done."""
        self._done += count
        if self._bar is not None:
            self._bar.update(count)
        now = time.monotonic()
        if self._is_shown and (now - self._told > 0.1 or self._done == self._total):
            self._told = now
            left = (now - self._began) * (self._total - self._done) / max(1, self._done)
            end = "\n" if self._done == self._total else ""
            print(f"\r{self._done} of {self._total}, {left:.0f} s left ", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the line."""
        if self._bar is not None:
            self._bar.close()


class _Ended(Protocol):
    """Hears of the end of a feed: a queue, or what does something then."""

    def put(self, item: Any) -> None: ...


class _Feed:
    """Hands out chunks that take about the same time, smaller ones towards the end, the next one when one is done.

    The executor's thread does this: then the thread that waits for results is woken only if there is one for it, and
    takes no time of the workers' cores in between.
    """

    def __init__(
        self,
        executor: Executor,
        work: Tuple[Callable[..., Any], List[Any], bool],
        size: Optional[int],
        chunk_seconds: float,
        keep: Callable[[int, List[Any]], None],
        ended: "_Ended",
    ) -> None:
        self._executor, self._size, self._chunk_seconds, self._keep = executor, size, chunk_seconds, keep
        #: The function, its items, and whether an item is several arguments.
        self._work = work
        #: Gets `None` when all results were kept, or something failed.
        self.ended = ended
        self._lock = threading.Lock()
        self._window = executor.size * (CREDIT if size else CHUNK_CREDIT)
        self._place = self._under_way = 0
        #: The time of an item.
        self._seconds: Optional[float] = None
        self._is_over = False
        self.error: Optional[BaseException] = None

    def start(self) -> None:
        """Hands out the first chunks."""
        with self._lock:
            self._go_on(lambda: None)

    def __enter__(self) -> "_Feed":
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._lock:
            self._is_over = True
            error, self.error = self.error, None
        if error and kind is None:
            raise error

    def _go_on(self, first: Callable[[], None]) -> None:
        """Does what is to be done first, and hands out what may be handed out."""
        try:
            first()
            self._fill()
            self._is_over = not self._under_way
        except BaseException as error:
            self._is_over, self.error = True, error
        if self._is_over:
            self.ended.put(None)

    def _fill(self) -> None:
        length = len(self._work[1])
        while self._place < length and self._under_way < self._window:
            fair = ceil((length - self._place) / (CHUNK_PARTS * self._window))
            limits = self._chunk_seconds, CHUNK_SECONDS_MIN
            most, least = (int(limit / self._seconds) if self._seconds else 1 for limit in limits)
            begin = self._place
            self._place = min(length, begin + (self._size or max(1, least, min(most, fair))))
            self._submit(begin, self._place)

    def _submit(self, begin: int, end: int) -> None:
        function, items, star = self._work
        call, about = chunk_of(function, items[begin:end], star)
        self._executor.begin(call, lambda job: self._after(begin, end, job), end - begin > 1, about)
        self._under_way += 1

    def _after(self, begin: int, end: int, job: Job) -> None:
        with self._lock:
            self._under_way -= 1
            if not self._is_over:
                self._go_on(lambda: self._take(begin, end, job))

    def _take(self, begin: int, end: int, job: Job) -> None:
        """Takes the results of a chunk; divides the chunk if its worker was lost."""
        try:
            results = job.future.result()
        except ChunkLost:
            middle = (begin + end) // 2
            self._submit(begin, middle)
            self._submit(middle, end)
            return
        measured = max(job.seconds / (end - begin), ITEM_SECONDS_MIN)
        self._seconds = measured if self._seconds is None else 0.5 * self._seconds + 0.5 * measured
        self._keep(begin, results)


def _retried(function: Callable[..., Any], retries: int) -> Callable[..., Any]:
    if retries < 0:
        raise ValueError("retries must be 0 or more")
    return Retried(function, retries) if retries else function


class AsyncResult:
    """A result that comes later, as that of `multiprocessing`."""

    def __init__(
        self,
        future: "concurrent.futures.Future[Any]",
        callback: Optional[Callable[[Any], object]] = None,
        error_callback: Optional[Callable[[BaseException], object]] = None,
    ) -> None:
        self._future = future

        def tell(done: "concurrent.futures.Future[Any]") -> None:
            error = concurrent.futures.CancelledError() if done.cancelled() else done.exception()
            if error is None and callback:
                callback(done.result())
            elif error is not None and error_callback:
                error_callback(error)

        future.add_done_callback(tell)

    def get(self, timeout: Optional[float] = None) -> Any:
        """Returns the result; raises the error of the call, or `multiprocessing.TimeoutError`."""
        self.wait(timeout)
        if not self.ready():
            raise multiprocessing.TimeoutError
        return self._future.result()

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until the result is there, or the time has passed."""
        concurrent.futures.wait([self._future], timeout)

    def ready(self) -> bool:
        """Returns whether the call has ended."""
        return self._future.done()

    def successful(self) -> bool:
        """Returns whether the call has ended without an error."""
        if not self.ready():
            raise ValueError(f"{self!r} is not ready")
        return not self._future.cancelled() and self._future.exception() is None


class _Later:
    """Ends a future when a feed ends."""

    def __init__(self, future: "concurrent.futures.Future[Any]", results: List[Any]) -> None:
        self._future, self._results = future, results
        self.feed: Optional[_Feed] = None

    def put(self, _: Any) -> None:
        """Does it."""
        error = self.feed.error if self.feed else None
        if error is None:
            self._future.set_result(self._results)
        else:
            self._future.set_exception(error)


class Pool:
    """Maps functions over items, with workers on all hosts of the machine.

    The methods are those of `multiprocessing.Pool`. `apply` has the arguments of the function itself, not a tuple.
    `retries`: how often a call is tried again that has raised an exception. `progress`: shows how many items are done.
    """

    def __init__(
        self,
        processes: Optional[int] = None,
        host: Optional[str] = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: Tuple[Any, ...] = (),
        output: Where = "tag",
    ) -> None:
        self.executor = Executor(processes, host, initializer, initargs, output)

    def map(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        chunksize: Optional[int] = None,
        *,
        retries: int = 0,
        progress: bool = False,
    ) -> List[Any]:
        """Returns the results in the order of the items. Raises the first exception of the function."""
        return self._all((_retried(function, retries), list(items), False), chunksize, progress)

    def starmap(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        chunksize: Optional[int] = None,
        *,
        retries: int = 0,
        progress: bool = False,
    ) -> List[Any]:
        """Does the same with several arguments for each call."""
        return self._all((_retried(function, retries), list(items), True), chunksize, progress)

    def imap_unordered(
        self, function: Callable[[Any], Any], items: Iterable[Any], chunksize: Optional[int] = None
    ) -> Iterator[Any]:
        """Yields each result as soon as it is there."""
        for _, results in self._chunks(function, list(items), chunksize):
            yield from results

    def imap(self, function: Callable[[Any], Any], items: Iterable[Any], chunksize: Optional[int] = None) -> Iterator[Any]:
        """Yields the results in the order of the items."""
        early: Dict[int, List[Any]] = {}
        place = 0
        for begin, results in self._chunks(function, list(items), chunksize):
            early[begin] = results
            while place in early:
                ready = early.pop(place)
                place += len(ready)
                yield from ready

    def apply(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Returns the result of one call."""
        return self.executor.submit(function, *args, **kwargs).result()

    def apply_async(
        self,
        function: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Optional[Dict[str, Any]] = None,
        callback: Optional[Callable[[Any], object]] = None,
        error_callback: Optional[Callable[[BaseException], object]] = None,
    ) -> AsyncResult:
        """Begins one call, with a tuple of arguments and a dictionary of named ones."""
        return AsyncResult(self.executor.submit(function, *args, **(kwds or {})), callback, error_callback)

    def map_async(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        chunksize: Optional[int] = None,
        callback: Optional[Callable[[Any], object]] = None,
        error_callback: Optional[Callable[[BaseException], object]] = None,
    ) -> AsyncResult:
        """Begins what `map` does."""
        return self._later((function, list(items), False), chunksize, callback, error_callback)

    def starmap_async(
        self,
        function: Callable[..., Any],
        items: Iterable[Any],
        chunksize: Optional[int] = None,
        callback: Optional[Callable[[Any], object]] = None,
        error_callback: Optional[Callable[[BaseException], object]] = None,
    ) -> AsyncResult:
        """Begins what `starmap` does."""
        return self._later((function, list(items), True), chunksize, callback, error_callback)

    def _later(
        self,
        work: Tuple[Callable[..., Any], List[Any], bool],
        size: Optional[int],
        callback: Optional[Callable[[Any], object]],
        error_callback: Optional[Callable[[BaseException], object]],
    ) -> AsyncResult:
        future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        results: List[Any] = [None] * len(work[1])

        def keep(begin: int, part: List[Any]) -> None:
            results[begin : begin + len(part)] = part

        later = _Later(future, results)
        later.feed = _Feed(self.executor, work, size, MAP_CHUNK_SECONDS, keep, later)
        result = AsyncResult(future, callback, error_callback)
        later.feed.start()
        return result

    def _all(
        self, work: Tuple[Callable[..., Any], List[Any], bool], size: Optional[int], shows_progress: bool
    ) -> List[Any]:
        results: List[Any] = [None] * len(work[1])
        ended: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        progress = _Progress(len(results), shows_progress)

        def keep(begin: int, part: List[Any]) -> None:
            results[begin : begin + len(part)] = part
            progress.add(len(part))

        try:
            with _Feed(self.executor, work, size, MAP_CHUNK_SECONDS, keep, ended):
                ended.get()
        finally:
            progress.close()
        return results

    def _chunks(
        self, function: Callable[..., Any], items: List[Any], size: Optional[int]
    ) -> Iterator[Tuple[int, List[Any]]]:
        """Yields the results of chunks as they come, and the place of each chunk."""
        ready: "queue.SimpleQueue[Optional[Tuple[int, List[Any]]]]" = queue.SimpleQueue()

        def keep(begin: int, part: List[Any]) -> None:
            ready.put((begin, part))

        with _Feed(self.executor, (function, items, False), size, IMAP_CHUNK_SECONDS, keep, ready) as feed:
            yield from iter(ready.get, None)

    def close(self) -> None:
        """Ends the workers after their work."""
        self.executor.shutdown()

    def terminate(self) -> None:
        """Ends the workers at once."""
        self.executor.shutdown(wait=False)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.executor.shutdown(wait=kind is None)
