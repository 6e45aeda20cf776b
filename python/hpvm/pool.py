"""Pools of workers that survive the loss of workers and hosts: lost work is done again, each result comes once.

>>> import hpvm
>>> with hpvm.Pool(2) as pool:
...     pool.map(abs, [-1, 2, -3])
[1, 2, 3]
>>> with hpvm.Executor(2) as executor:
...     executor.submit(pow, 2, 10).result()
1024
"""
from __future__ import annotations

import atexit
import concurrent.futures
import itertools
import os
import pickle
import queue
import sys
import threading
import time
import weakref
from collections import OrderedDict, deque
from math import ceil
from multiprocessing import spawn as preparation
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from . import _hpvm, machine
from .errors import PvmError, WorkerLost, check
from .messages import dumps, loads
from .worker import EXIT, HEAD, JOB, READY, RESULT, SETUP, STOP

#: How many jobs a worker has at once: while it does one, the others are there already.
CREDIT = 4
#: How often the job that a worker was doing may be lost before it fails with `WorkerLost`.
LOSSES_MAX = 5
#: How long workers may end before they can do anything, or not be started at all, until waiting jobs fail, in seconds.
NO_WORKER_SECONDS_MAX = 30.0
#: Before the next try to start workers, if the last ones ended at once: how many tries are made without a pause, the
#: first pause, and the longest one, in seconds.
TRIES_AT_ONCE, PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 4, 0.05, 1.0
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


class _Job:
    def __init__(self, number: int, parts: List[Any], is_chunk: bool) -> None:
        self.parts = [number.to_bytes(8, "little"), *parts]
        self.number = number
        self.future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()
        #: Several items: when its worker is lost, nobody knows at which of them, so they are done again apart.
        self.is_chunk = is_chunk
        #: How many workers ended while they did it.
        self.losses = 0
        self.seconds = 0.0


_Failure = Tuple[_Job, BaseException]


class _ChunkLost(Exception):
    """A worker ended while it did a chunk."""


class Executor(concurrent.futures.Executor):
    """An executor of `concurrent.futures` whose workers are tasks, on any host of the machine.

    Functions and arguments must be picklable; functions of the main program are found by importing it again in the
    worker, as `multiprocessing` does, so protect its top level by `if __name__ == "__main__":`. A job whose worker
    is lost is done again by another worker; so a job can run more than once, but its result comes once. A job fails
    with `WorkerLost` if five workers have ended while they did it.

    All jobs fail with `PvmError` if this task is cut off: its daemon has ended, or its host is out of the machine. If
    this task ends, its jobs are lost, and its workers end. `docs/python.md` says how another task can take its place.
    """

    def __init__(self, max_workers: Optional[int] = None, host: Optional[str] = None) -> None:
        machine.start()
        self.size = max_workers or os.cpu_count() or 1
        if self.size < 1:
            raise ValueError("max_workers must be 1 or more")
        self._host = host
        self._me = machine.mytid()
        self._context = check("pvm_newcontext", _hpvm.newcontext())
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._waiting: Deque[_Job] = deque()
        #: For each worker, what it has to do, the job that it is doing first.
        self._workers: Dict[int, "OrderedDict[int, _Job]"] = {}
        #: The workers that have started and can do jobs.
        self._ready: Set[int] = set()
        #: How many workers have ended in a row before they could do anything, since when there is none that could,
        #: when the next ones may be started, and why the last ones could not.
        self._stillborn = 0
        self._without_since: Optional[float] = None
        self._next_try = 0.0
        self._reason: Optional[PvmError] = None
        self._is_open, self._is_stopped = True, False
        #: Why this task can no longer hear its workers: its host is out of the machine, or its daemon has ended.
        self._cut_off: Optional[PvmError] = None
        self._idle = threading.Condition(self._lock)
        #: How many workers were lost.
        self.lost = 0
        _hpvm.share()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="hpvm-executor")
        with self._lock:
            self._hire()
        self._thread.start()
        _all.add(self)

    @property
    def workers(self) -> List[int]:
        """The tids of the workers."""
        with self._lock:
            return list(self._workers)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "concurrent.futures.Future[Any]":
        """Schedules a call; returns its future."""
        return self._submit(dumps((fn, args, kwargs))).future

    def _submit(self, parts: List[Any], done: Optional[Callable[[_Job], None]] = None, is_chunk: bool = False) -> _Job:
        job = _Job(next(self._numbers), parts, is_chunk)
        if done:
            job.future.add_done_callback(lambda _: done(job))
        with self._lock:
            if self._cut_off:
                raise self._cut_off
            if not self._is_open:
                raise RuntimeError("the executor was shut down")
            self._waiting.append(job)
            self._hand_out()
        return job

    def _hire(self) -> None:
        """Starts the workers that are missing."""
        missing = self.size - len(self._workers)
        if missing <= 0:
            return
        code = f"from hpvm.worker import main; main({self._context})"
        tids = machine.python(code, count=missing, host=self._host)
        about = preparation.get_preparation_data("hpvm-worker")
        # The key must not leave this process, and workers keep their own directory if this one is not there.
        about.pop("authkey", None)
        if not about.get("dir") or self._host:
            about.pop("dir", None)
        for tid in tids:
            self._workers[tid] = OrderedDict()
        _hpvm.notify(1, EXIT, tids, -1, self._context)
        _hpvm.send_object(tids, SETUP, [pickle.dumps(about)], self._context)

    def _hand_out(self) -> None:
        """Hands waiting jobs to the workers that have the fewest. A job of a worker that starts would wait long."""
        while self._waiting and self._ready:
            tid = min(self._ready, key=lambda worker: len(self._workers[worker]))
            jobs = self._workers[tid]
            if len(jobs) >= CREDIT:
                return
            job = self._waiting.popleft()
            if not job.future.running() and not job.future.set_running_or_notify_cancel():
                continue
            jobs[job.number] = job
            _hpvm.send_object([tid], JOB, job.parts, self._context)

    def _serve(self) -> None:
        try:
            self._hear_workers()
        except PvmError as error:
            self._give_up(error)

    def _give_up(self, reason: PvmError) -> None:
        """Fails all jobs, so that no thread waits for results that cannot come."""
        with self._lock:
            if self._is_stopped:
                return
            self._cut_off, self._is_open, self._is_stopped = reason, False, True
            jobs = [*self._waiting, *(job for jobs in self._workers.values() for job in jobs.values())]
            self._waiting.clear()
            self._workers.clear()
            self._ready.clear()
            self._idle.notify_all()
        _fail([(job, reason) for job in jobs])

    def _hear_workers(self) -> None:
        while True:
            message = _hpvm.recv_message(-1, -1, self._until_next_try(), self._context)
            if message is None:
                self._try_again()
            elif message.tag == STOP and message.tid == self._me:
                return
            elif message.tag == RESULT:
                self._take(message.tid, message.parts())
            elif message.tag == READY:
                self._begin(message.tid)
            elif message.tag == EXIT:
                into = bytearray(4)
                message.unpack_into(3, 4, into)
                self._lose(int.from_bytes(into, sys.byteorder, signed=True))

    def _until_next_try(self) -> Optional[float]:
        """Returns the seconds until missing workers may be started; None if none are missing."""
        with self._lock:
            if len(self._workers) >= self.size or self._is_stopped:
                return None
            return max(0.001, self._next_try - time.monotonic())

    def _try_again(self) -> None:
        with self._lock:
            failed = self._replace()
            self._idle.notify_all()
        _fail(failed)

    def _begin(self, tid: int) -> None:
        with self._lock:
            if tid in self._workers:
                self._ready.add(tid)
                self._stillborn, self._without_since, self._reason = 0, None, None
                self._next_try = 0.0
                if len(self._workers) < self.size:
                    self._replace()
                self._hand_out()

    def _take(self, tid: int, parts: List[Any]) -> None:
        number, ok, seconds = HEAD.unpack(parts[0])
        job: Optional[_Job] = None
        try:
            with self._lock:
                # A worker that is unknown was given up; its jobs are elsewhere.
                job = self._workers.get(tid, {}).pop(number, None)
                self._hand_out()
                self._idle.notify_all()
        finally:
            # Also if the next job cannot be sent.
            if job is not None:
                self._finish(job, ok, seconds, parts)

    @staticmethod
    def _finish(job: _Job, ok: bool, seconds: float, parts: List[Any]) -> None:
        job.seconds = seconds
        try:
            value = loads(parts[1:])
        except Exception as error:
            ok, value = False, error
        (job.future.set_result if ok else job.future.set_exception)(value)

    def _lose(self, tid: int) -> None:
        failed: List[_Failure] = []
        try:
            with self._lock:
                jobs = list(self._workers.pop(tid, {}).values())
                if self._is_stopped:
                    return
                self.lost += 1
                if tid in self._ready:
                    self._ready.discard(tid)
                else:
                    self._note_failed_start()
                self._note_time_without()
                if jobs:
                    # The first one was in work; the others may wait on.
                    failed += self._count_loss(jobs[0])
                    if failed:
                        jobs.pop(0)
                self._waiting.extendleft(reversed(jobs))
                failed += self._replace()
                self._hand_out()
                self._idle.notify_all()
        finally:
            _fail(failed)

    @staticmethod
    def _count_loss(job: _Job) -> "List[_Failure]":
        """Counts a worker that ended while it did the job. Returns the job if it is not to be done once more."""
        if job.is_chunk:
            return [(job, _ChunkLost())]
        job.losses += 1
        if job.losses < LOSSES_MAX:
            return []
        return [(job, WorkerLost(f"{LOSSES_MAX} workers ended while they did this job"))]

    def _note_time_without(self) -> None:
        """Notes since when no worker can do anything."""
        if not self._ready and self._without_since is None:
            self._without_since = time.monotonic()

    def _note_failed_start(self) -> None:
        """Plans the next try after workers that could not be started, or ended before they could do anything."""
        self._stillborn += 1
        self._note_time_without()
        if self._stillborn >= TRIES_AT_ONCE:
            pause = PAUSE_SECONDS_MIN * 2.0 ** min(self._stillborn - TRIES_AT_ONCE, 10)
            self._next_try = time.monotonic() + min(pause, PAUSE_SECONDS_MAX)

    def _replace(self) -> "List[_Failure]":
        """Starts workers for lost ones if it is time. Returns the jobs that nobody can do any more, and why."""
        now = time.monotonic()
        if now >= self._next_try:
            try:
                self._hire()
            except PvmError as error:
                self._reason = error
                self._note_failed_start()
                self._next_try = max(self._next_try, now + PAUSE_SECONDS_MIN)
        since = self._without_since
        if self._ready or since is None or now - since < NO_WORKER_SECONDS_MAX:
            return []
        self._stillborn, self._without_since = 0, None
        reason: BaseException = self._reason or WorkerLost(
            "workers end before they have started: run `python -m hpvm.demo` on each host"
        )
        hopeless = [(job, reason) for job in self._waiting]
        self._waiting.clear()
        return hopeless

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the workers, after their jobs if `wait` is true."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_open = False
            if cancel_futures or not wait:
                dropped = list(self._waiting)
                self._waiting.clear()
            else:
                dropped = []
        # The others were in work when their workers were lost.
        lost = [job for job in dropped if not job.future.cancel()]
        _fail([(job, WorkerLost("the executor was shut down before the job could be done again")) for job in lost])
        with self._lock:
            while wait and (self._waiting or any(self._workers.values())):
                self._idle.wait()
            if self._is_stopped:
                return
            self._is_stopped = True
            left = list(self._workers)
            # None is left if this call has waited. Nobody else ends the jobs taken here: a result that comes later finds none.
            unfinished = list(self._waiting)
            self._waiting.clear()
            for jobs in self._workers.values():
                unfinished += jobs.values()
                jobs.clear()
            self._idle.notify_all()
        # Jobs end before anything is sent: a send fails if this task is cut off.
        if not wait:
            _fail([(job, WorkerLost("the executor was shut down without waiting")) for job in unfinished])
        if left:
            _hpvm.send_object(left, STOP, [b""], self._context)
        if not wait:
            for tid in left:
                _hpvm.kill(tid)
        _hpvm.send_object([self._me], STOP, [b""], self._context)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        _hpvm.freecontext(self._context)
        _all.discard(self)


def _fail(failed: "List[_Failure]") -> None:
    for job, error in failed:
        if job.future.running() or job.future.set_running_or_notify_cancel():
            job.future.set_exception(error)


_all: "weakref.WeakSet[Executor]" = weakref.WeakSet()


@atexit.register
def _end() -> None:
    for executor in list(_all):
        executor.shutdown(wait=False)


def _run(function: Callable[..., Any], items: List[Any], star: bool) -> List[Any]:
    return [function(*item) for item in items] if star else [function(item) for item in items]


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
        ended: "Optional[queue.SimpleQueue[Any]]" = None,
    ) -> None:
        self._executor, self._size, self._chunk_seconds, self._keep = executor, size, chunk_seconds, keep
        #: The function, its items, and whether an item is several arguments.
        self._work = work
        #: Gets `None` when all results were kept, or something failed.
        self.ended: "queue.SimpleQueue[Any]" = ended or queue.SimpleQueue()
        self._lock = threading.Lock()
        self._window = executor.size * (CREDIT if size else CHUNK_CREDIT)
        self._place = self._under_way = 0
        #: The time of an item.
        self._seconds: Optional[float] = None
        self._is_over = False
        self._error: Optional[BaseException] = None
        with self._lock:
            self._go_on(lambda: None)

    def __enter__(self) -> "_Feed":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._lock:
            self._is_over = True
            error, self._error = self._error, None
        if error and kind is None:
            raise error

    def _go_on(self, first: Callable[[], None]) -> None:
        """Does what is to be done first, and hands out what may be handed out."""
        try:
            first()
            self._fill()
            self._is_over = not self._under_way
        except BaseException as error:
            self._is_over, self._error = True, error
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
        parts = dumps((_run, (function, items[begin:end], star), {}))
        self._executor._submit(parts, lambda job: self._after(begin, end, job), end - begin > 1)
        self._under_way += 1

    def _after(self, begin: int, end: int, job: _Job) -> None:
        with self._lock:
            self._under_way -= 1
            if not self._is_over:
                self._go_on(lambda: self._take(begin, end, job))

    def _take(self, begin: int, end: int, job: _Job) -> None:
        """Takes the results of a chunk; divides the chunk if its worker was lost."""
        try:
            results = job.future.result()
        except _ChunkLost:
            middle = (begin + end) // 2
            self._submit(begin, middle)
            self._submit(middle, end)
            return
        measured = max(job.seconds / (end - begin), ITEM_SECONDS_MIN)
        self._seconds = measured if self._seconds is None else 0.5 * self._seconds + 0.5 * measured
        self._keep(begin, results)


class Pool:
    """Maps functions over items, with workers on all hosts of the machine."""

    def __init__(self, processes: Optional[int] = None, host: Optional[str] = None) -> None:
        self.executor = Executor(processes, host)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], chunksize: Optional[int] = None) -> List[Any]:
        """Returns the results in the order of the items. Raises the first exception of the function."""
        return self._all(function, items, chunksize, False)

    def starmap(self, function: Callable[..., Any], items: Iterable[Any], chunksize: Optional[int] = None) -> List[Any]:
        """Does the same with several arguments for each call."""
        return self._all(function, items, chunksize, True)

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

    def _all(self, function: Callable[..., Any], items: Iterable[Any], size: Optional[int], star: bool) -> List[Any]:
        listed = list(items)
        results: List[Any] = [None] * len(listed)

        def keep(begin: int, part: List[Any]) -> None:
            results[begin : begin + len(part)] = part

        with _Feed(self.executor, (function, listed, star), size, MAP_CHUNK_SECONDS, keep) as feed:
            feed.ended.get()
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
