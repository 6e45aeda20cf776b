"""An executor whose workers may be lost, with their hosts: lost work is done again, each result comes once.

>>> import hpvm
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
import sys
import threading
import time
import weakref
from collections import OrderedDict, deque
from multiprocessing import spawn as preparation
from typing import Any, Callable, Deque, Dict, Hashable, List, Optional, Set, Tuple

from . import _hpvm, machine
from .calls import describe, host_of, host_tid, is_interactive, pack, unpack_error
from .errors import PvmError, WorkerLost, check
from .messages import loads
from .output import Output, Where
from .worker import EXIT, HEAD, JOB, OUTPUT, READY, RESULT, SETUP, STOP

#: How many jobs a worker has at most: while it does one, the others are there already. Only jobs that are known to be short
#: wait at a worker: all that it has take at most this time, as far as the calls before have shown, in seconds.
CREDIT, CREDIT_SECONDS = 4, 0.01
#: How much the time of the last call of a function counts for the time that is expected of the next one.
SECONDS_WEIGHT = 0.3
#: Of how many functions the times are kept.
FUNCTIONS_MAX = 1000
#: How long the end of what workers print is waited for at the end of an executor, in seconds.
OUTPUT_SECONDS = 10.0
#: How often the job that a worker was doing may be lost before it fails with `WorkerLost`.
LOSSES_MAX = 5
#: How long workers may end before they can do anything, or not be started at all, until waiting jobs fail, in seconds.
NO_WORKER_SECONDS_MAX = 30.0
#: Before the next try to start workers, if the last ones ended at once: how many tries are made without a pause, the
#: first pause, and the longest one, in seconds.
TRIES_AT_ONCE, PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 4, 0.05, 1.0
class Job:
    """A call that a worker does."""

    def __init__(self, number: int, parts: List[Any], call: "Call", is_chunk: bool) -> None:
        self.parts = [number.to_bytes(8, "little"), *parts]
        self.number = number
        #: What the user has asked for.
        self.call = call
        self.future: "concurrent.futures.Future[Any]" = concurrent.futures.Future()
        #: Several items: when its worker is lost, nobody knows at which of them, so they are done again apart.
        self.is_chunk = is_chunk
        #: How many workers ended while they did it.
        self.losses = 0
        self.seconds = 0.0


#: A function with its arguments.
Call = Tuple[Callable[..., Any], Tuple[Any, ...], Dict[str, Any]]
_Failure = Tuple[Job, BaseException]


class ChunkLost(Exception):
    """A worker ended while it did a chunk."""


class Executor(concurrent.futures.Executor):
    """An executor of `concurrent.futures` whose workers are tasks, on any host of the machine.

    Functions and arguments must be picklable; functions of the main program are found by importing it again in the
    worker, as `multiprocessing` does, so protect its top level by `if __name__ == "__main__":`. Lambdas, local functions and
    those of an interactive session need `cloudpickle`. Each worker calls `initializer(*initargs)` first. What workers print
    appears on the standard output, with the worker's tid before each line ("tag") or without it ("plain"), in the daemon's
    log ("log"), or goes to a function of tid and line. A job whose worker
    is lost is done again by another worker; so a job can run more than once, but its result comes once. A job fails
    with `WorkerLost` if five workers have ended while they did it. An error of a job has the worker's traceback as its
    `__cause__`.

    All jobs fail with `PvmError` if this task is cut off: its daemon has ended, or its host is out of the machine. If
    this task ends, its jobs are lost, and its workers end. `docs/python.md` says how another task can take its place.
    """

    def __init__(
        self,
        max_workers: Optional[int] = None,
        host: Optional[str] = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: Tuple[Any, ...] = (),
        output: Where = "tag",
    ) -> None:
        self._output = Output(output)
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be callable")
        machine.start()
        self.size = max_workers or os.cpu_count() or 1
        if self.size < 1:
            raise ValueError("max_workers must be 1 or more")
        self._host = host
        self._setup = self._prepare(initializer, initargs)
        #: The seconds that a call of a function takes, as far as earlier ones have shown.
        self._expected: "OrderedDict[Hashable, float]" = OrderedDict()
        self._me = machine.mytid()
        self._context = check("pvm_newcontext", _hpvm.newcontext())
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._waiting: Deque[Job] = deque()
        #: For each worker, what it has to do, the job that it is doing first.
        self._workers: Dict[int, "OrderedDict[int, Job]"] = {}
        #: All that there have been.
        self._hired: Set[int] = set()
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
        return self.begin((fn, args, kwargs)).future

    def begin(
        self,
        call: Call,
        done: Optional[Callable[[Job], None]] = None,
        is_chunk: bool = False,
        about: Optional[Call] = None,
    ) -> Job:
        """Schedules a call; `done` is called at its end. `about`: what the user has asked for, if that is another call."""
        job = Job(next(self._numbers), pack(call), about or call, is_chunk)
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

    def _prepare(self, initializer: Optional[Callable[..., object]], initargs: Tuple[Any, ...]) -> List[Any]:
        """Returns what workers need before they can do jobs: where the main program is, and the initializer."""
        about = preparation.get_preparation_data("hpvm-worker")
        # The key must not leave this process, and workers keep their own directory if this one is not there.
        about.pop("authkey", None)
        if is_interactive():
            about.pop("init_main_from_path", None)
        if not about.get("dir") or self._host:
            about.pop("dir", None)
        # The initializer can be read only after the main program has been imported.
        first = None if initializer is None else pack((initializer, initargs, {}))
        return [pickle.dumps(about), *(first or [])]

    def _hire(self) -> None:
        """Starts the workers that are missing."""
        missing = self.size - len(self._workers)
        if missing <= 0:
            return
        code = f"from hpvm.worker import main; main({self._context})"
        with self._output.collected(self._me, OUTPUT, self._context):
            tids = machine.python(code, count=missing, host=self._host)
        self._hired.update(tids)
        for tid in tids:
            self._workers[tid] = OrderedDict()
        _hpvm.notify(1, EXIT, tids, -1, self._context)
        _hpvm.send_object(tids, SETUP, self._setup, self._context)

    def _hand_out(self) -> None:
        """Hands waiting jobs to workers that do nothing; short ones also to others, so that they are there in time."""
        while self._waiting and self._ready:
            job = self._waiting[0]
            tid = min(self._ready, key=lambda worker: len(self._workers[worker]))
            jobs = self._workers[tid]
            if jobs and not self._may_queue(job, jobs):
                return
            self._waiting.popleft()
            if not job.future.running() and not job.future.set_running_or_notify_cancel():
                continue
            jobs[job.number] = job
            _hpvm.send_object([tid], JOB, job.parts, self._context)

    def _may_queue(self, job: Job, before: "OrderedDict[int, Job]") -> bool:
        """Returns whether a job may wait at a worker for jobs before it. Who starts now would do it sooner."""
        if len(before) >= CREDIT or len(self._ready) < self.size:
            return False
        expected = [self._expected.get(_key(one.call)) for one in (job, *before.values())]
        known = [seconds for seconds in expected if seconds is not None]
        return len(known) == len(expected) and sum(known) <= CREDIT_SECONDS

    def _note_seconds(self, job: Job, seconds: float) -> None:
        """Learns how long a call of this function takes."""
        job.seconds = seconds
        key = _key(job.call)
        before = self._expected.pop(key, seconds)
        # What was long once may be long again.
        self._expected[key] = max(seconds, before + SECONDS_WEIGHT * (seconds - before))
        if len(self._expected) > FUNCTIONS_MAX:
            self._expected.popitem(last=False)

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
                self._hear_the_last()
                return
            elif message.tag == OUTPUT:
                self._output.take(message)
            elif message.tag == RESULT:
                self._take(message.tid, message.parts())
            elif message.tag == READY:
                self._begin(message.tid)
            elif message.tag == EXIT:
                into = bytearray(4)
                message.unpack_into(3, 4, into)
                self._lose(int.from_bytes(into, sys.byteorder, signed=True))

    def _hear_the_last(self) -> None:
        """Shows what workers have printed at last. Those of lost hosts print no more."""
        hosts = {host.tid for host in machine.hosts()}
        hired = {tid for tid in self._hired if host_tid(tid) in hosts}
        end = time.monotonic() + OUTPUT_SECONDS
        while not self._output.has_ended(hired) and time.monotonic() < end:
            message = _hpvm.recv_message(-1, OUTPUT, max(0.0, end - time.monotonic()), self._context)
            if message is not None:
                self._output.take(message)

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
                self._idle.notify_all()

    def await_workers(self) -> None:
        """Waits until all workers can do jobs."""
        with self._lock:
            while self._is_open and len(self._ready) < self.size:
                self._idle.wait()

    def _take(self, tid: int, parts: List[Any]) -> None:
        number, ok, seconds = HEAD.unpack(parts[0])
        job: Optional[Job] = None
        try:
            with self._lock:
                # A worker that is unknown was given up; its jobs are elsewhere.
                job = self._workers.get(tid, {}).pop(number, None)
                if job is not None:
                    self._note_seconds(job, seconds)
                self._hand_out()
                self._idle.notify_all()
        finally:
            # Also if the next job cannot be sent.
            if job is not None:
                self._finish(job, ok, parts)

    @staticmethod
    def _finish(job: Job, ok: bool, parts: List[Any]) -> None:
        try:
            value = loads(parts[1:])
            value = value if ok else unpack_error(value)
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
                    failed += self._count_loss(jobs[0], tid)
                    if failed:
                        jobs.pop(0)
                self._waiting.extendleft(reversed(jobs))
                failed += self._replace()
                self._hand_out()
                self._idle.notify_all()
        finally:
            _fail(failed)

    @staticmethod
    def _count_loss(job: Job, tid: int) -> "List[_Failure]":
        """Counts a worker that ended while it did the job. Returns the job if it is not to be done once more."""
        if job.is_chunk:
            return [(job, ChunkLost())]
        job.losses += 1
        if job.losses < LOSSES_MAX:
            return []
        where = host_of(tid) or "a host that has left the machine"
        text = f"{LOSSES_MAX} workers ended while they did {describe(*job.call)}, the last one t{tid:x} on {where}"
        return [(job, WorkerLost(text))]

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


def _key(call: Call) -> Hashable:
    """Returns what stands for all calls of the same function."""
    function = call[0]
    return getattr(function, "__module__", None), getattr(function, "__qualname__", None) or type(function).__qualname__
