"""The interface of `mpi4py.futures`, for programs that were written for it: only the import changes.

>>> from hpvm.futures import MPIPoolExecutor
>>> with MPIPoolExecutor(2) as executor:
...     list(executor.starmap(pow, [(2, 3), (3, 2)], chunksize=2))
[8, 9]
"""
from __future__ import annotations

import concurrent.futures
import time
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION, Future, as_completed, wait
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

from .executor import Executor
from .pool import chunk_of

__all__ = [
    "ALL_COMPLETED", "FIRST_COMPLETED", "FIRST_EXCEPTION", "Future", "MPIPoolExecutor", "as_completed", "wait",
]  # fmt: skip


class MPIPoolExecutor(Executor):
    """An executor whose workers are tasks, with the methods of the class of this name in `mpi4py.futures`.

    Options that are about MPI or the start of its processes are refused. `num_workers` is known at once.
    """

    def __init__(
        self,
        max_workers: Optional[int] = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: Tuple[Any, ...] = (),
        **options: Any,
    ) -> None:
        more = {name: options.pop(name) for name in ("host", "output") if name in options}
        if options:
            raise TypeError(f"{', '.join(options)}: not options of hpvm; its workers start as `hpvm.spawn` starts tasks")
        super().__init__(max_workers, initializer=initializer, initargs=initargs, **more)

    @property
    def num_workers(self) -> int:
        """How many workers there are to be."""
        return self.size

    def bootup(self, wait: bool = True) -> "MPIPoolExecutor":
        """Waits until all workers can do jobs, if `wait` is true."""
        if wait:
            self.await_workers()
        return self

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: int = 1,
        unordered: bool = False,
    ) -> Iterator[Any]:
        """Yields the results of calls with an item of each iterable; in any order if `unordered` is true."""
        return self.starmap(fn, zip(*iterables), timeout, chunksize, unordered)

    def starmap(
        self,
        fn: Callable[..., Any],
        iterable: Iterable[Any],
        timeout: Optional[float] = None,
        chunksize: int = 1,
        unordered: bool = False,
    ) -> Iterator[Any]:
        """Does the same with the arguments of each call in a tuple."""
        if chunksize < 1:
            raise ValueError("chunksize must be 1 or more")
        items = list(iterable)
        places = range(0, len(items), chunksize)
        chunks = [chunk_of(fn, items[place : place + chunksize], True) for place in places]
        futures = [self.begin(call, about=about).future for call, about in chunks]
        return _results(futures, timeout, unordered)


def _results(futures: "List[Future[Any]]", timeout: Optional[float], unordered: bool) -> Iterator[Any]:
    end = None if timeout is None else time.monotonic() + timeout
    try:
        for future in as_completed(futures, timeout) if unordered else futures:
            yield from future.result(None if end is None else max(0.0, end - time.monotonic()))
    except concurrent.futures.TimeoutError:
        raise TimeoutError(f"not all results have come within {timeout} s") from None
    finally:
        for future in futures:
            future.cancel()
