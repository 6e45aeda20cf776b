"""A program for `mpi4py.futures`, of which only the import has changed."""
import time

import pytest

from hpvm.futures import MPIPoolExecutor, as_completed, wait


def square(value):
    return value * value


def add(one, other):
    return one + other


def initialize(value):
    global offset
    offset = value


def shifted(value):
    return value + offset


def test_the_methods_do_what_they_do_there():
    with MPIPoolExecutor(max_workers=2, initializer=initialize, initargs=(10,)) as executor:
        assert executor.bootup() is executor and executor.num_workers == 2
        assert list(executor.map(square, range(10))) == [number * number for number in range(10)]
        assert list(executor.map(add, range(5), range(5), chunksize=2)) == [0, 2, 4, 6, 8]
        assert sorted(executor.map(square, range(10), chunksize=3, unordered=True)) == [n * n for n in range(10)]
        assert list(executor.starmap(add, [(1, 2), (3, 4)])) == [3, 7]
        assert list(executor.map(shifted, [1, 2])) == [11, 12]
        futures = [executor.submit(square, number) for number in range(4)]
        assert {future.result() for future in as_completed(futures)} == {0, 1, 4, 9}
        assert not wait(futures).not_done


def test_what_is_late_or_wrong_says_so():
    with MPIPoolExecutor(1) as executor:
        with pytest.raises(TimeoutError, match="within 0.01 s"):
            list(executor.map(time.sleep, [0.5], timeout=0.01))
        with pytest.raises(ValueError, match="chunksize"):
            executor.map(square, [1], chunksize=0)
    with pytest.raises(TypeError, match="mpi_info: not options of hpvm"):
        MPIPoolExecutor(1, mpi_info={})
