import concurrent.futures
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
import traceback

import numpy
import pytest

import hpvm


def double(value):
    return 2 * value


def slow(value):
    time.sleep(0.005)
    return value


def die(_):
    os._exit(3)


def fail(value):
    raise ValueError(f"no {value}")


@pytest.fixture(scope="module")
def pool():
    with hpvm.Pool(2) as made:
        yield made


def test_results_come_in_order(pool):
    assert pool.map(double, range(1000)) == list(range(0, 2000, 2))
    assert list(pool.imap(double, range(100))) == list(range(0, 200, 2))
    assert sorted(pool.imap_unordered(double, range(100), chunksize=7)) == list(range(0, 200, 2))
    assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9] and pool.map(double, []) == []


def test_arrays_go_through_pools(pool):
    assert (pool.apply(double, numpy.arange(50_000)) == numpy.arange(0, 100_000, 2)).all()


def test_exceptions_arrive(pool):
    with pytest.raises(ValueError, match="no 3"):
        pool.map(fail, [3])
    assert pool.apply(double, 4) == 8


def test_what_cannot_be_pickled_ends_the_map_and_not_the_pool(pool):
    # The last item is pickled by the executor's thread, when earlier chunks are done.
    for items in ([threading.Lock()], [*range(100), threading.Lock()]):
        with pytest.raises(TypeError):
            pool.map(double, items)
    assert pool.map(double, [6]) == [12]


def test_results_that_nobody_wants_any_more_do_not_disturb(pool):
    for result in pool.imap_unordered(slow, range(50), chunksize=1):
        break
    assert result in range(50) and pool.map(double, range(50)) == list(range(0, 100, 2))


def test_a_map_whose_pool_is_closed_meanwhile_ends():
    pool = hpvm.Pool(2)
    results = pool.imap(slow, range(400), chunksize=1)
    assert next(results) == 0
    threading.Thread(target=pool.terminate).start()
    with pytest.raises((hpvm.WorkerLost, RuntimeError, concurrent.futures.CancelledError)):
        list(results)
    with pytest.raises(RuntimeError, match="shut down"):
        pool.map(double, [1])


def test_a_shutdown_amid_results_ends_every_job_once():
    for _ in range(10):
        executor = hpvm.Executor(2)
        futures = [executor.submit(double, number) for number in range(300)]
        futures[20].result(timeout=20)
        executor.shutdown(wait=False)
        for number, future in enumerate(futures):
            try:
                assert future.result(timeout=20) == 2 * number
            except (hpvm.WorkerLost, concurrent.futures.CancelledError):
                pass


def test_a_shutdown_ends_the_job_of_a_lost_worker():
    executor = hpvm.Executor(1)
    future = executor.submit(time.sleep, 30)
    end = time.monotonic() + 20
    while not future.running() and time.monotonic() < end:
        time.sleep(0.01)
    hpvm.send_signal(executor.workers[0], 9)
    while executor.lost == 0 and time.monotonic() < end:
        time.sleep(0.001)
    executor.shutdown(wait=False)
    with pytest.raises(hpvm.WorkerLost):
        future.result(timeout=20)


def test_a_shutdown_that_waits_ends_when_another_thread_does_not_wait():
    executor = hpvm.Executor(1)
    futures = [executor.submit(time.sleep, 30) for _ in range(3)]
    waiting = threading.Thread(target=executor.shutdown)
    waiting.start()
    time.sleep(0.2)
    executor.shutdown(wait=False)
    waiting.join(timeout=20)
    assert not waiting.is_alive() and all(future.done() for future in futures)


def test_every_result_is_there_once_although_workers_are_killed():
    with hpvm.Pool(3) as pool:
        results = []
        for result in pool.imap_unordered(slow, range(600), chunksize=3):
            results.append(result)
            # By progress, not by time: on a slow machine, workers need long to start.
            if len(results) in (60, 200, 350, 500):
                hpvm.send_signal(pool.executor.workers[0], 9)
        assert sorted(results) == list(range(600)) and pool.executor.lost >= 3


def die_twice(value, marks):
    if value == 5 and len(os.listdir(marks)) < 2:
        open(os.path.join(marks, str(os.getpid())), "w").close()
        os._exit(3)
    return value


def test_the_items_of_a_lost_chunk_are_done_again_apart(pool, tmp_path):
    lost = pool.executor.lost
    items = [(number, str(tmp_path)) for number in range(16)]
    assert pool.starmap(die_twice, items, chunksize=8) == list(range(16))
    assert pool.executor.lost == lost + 2


def test_workers_that_are_killed_before_they_can_start_do_not_end_the_work():
    with hpvm.Pool(2) as pool:
        end = time.monotonic() + 1.5
        job = pool.executor.submit(double, 21)
        killed = 0
        while time.monotonic() < end and not job.done():
            for tid in pool.executor.workers:
                try:
                    hpvm.send_signal(tid, 9)
                    killed += 1
                except hpvm.PvmError:
                    pass  # it ended meanwhile
            time.sleep(0.02)
        assert killed > 2
        assert job.result(timeout=60) == 42


def test_a_job_that_ends_each_worker_fails_at_last(pool):
    future = pool.executor.submit(die, 1)
    with pytest.raises(hpvm.WorkerLost, match="5 workers"):
        future.result(timeout=40)
    assert pool.apply(double, 5) == 10


def test_the_executor_is_one_of_concurrent_futures():
    with hpvm.Executor(2) as executor:
        futures = [executor.submit(double, number) for number in range(50)]
        assert [future.result(timeout=20) for future in futures] == list(range(0, 100, 2))
        assert list(executor.map(double, [1, 2])) == [2, 4]
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(double, 1)


def test_waiting_jobs_can_be_cancelled():
    executor = hpvm.Executor(1)
    futures = [executor.submit(time.sleep, 0.1) for _ in range(20)]
    executor.shutdown(wait=True, cancel_futures=True)
    assert futures[0].done() and futures[-1].cancelled()


def meet(number, folder, members):
    """Waits until so many calls run at the same time."""
    open(os.path.join(folder, str(number)), "w").close()
    end = time.monotonic() + 60
    while len(os.listdir(folder)) < members:
        assert time.monotonic() < end, os.listdir(folder)
        time.sleep(0.01)
    return os.getpid()


def wait_for(path):
    end = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_each_worker_of_a_fresh_executor_gets_a_job(tmp_path):
    with hpvm.Executor(3) as executor:
        futures = [executor.submit(meet, number, str(tmp_path), 3) for number in range(3)]
        assert len({future.result(timeout=60) for future in futures}) == 3


def test_each_worker_of_a_fresh_pool_gets_an_item(tmp_path):
    with hpvm.Pool(3) as pool:
        assert len(set(pool.starmap(meet, [(number, str(tmp_path), 3) for number in range(3)]))) == 3


def test_short_jobs_do_not_wait_behind_long_ones(tmp_path):
    end = str(tmp_path / "end")
    with hpvm.Executor(2) as executor:
        assert [executor.submit(double, number).result(timeout=60) for number in range(20)] == list(range(0, 40, 2))
        long = executor.submit(wait_for, end)
        short = [executor.submit(double, number) for number in range(20)]
        # The long one ends only when all short ones have ended.
        assert [future.result(timeout=60) for future in short] == list(range(0, 40, 2))
        open(end, "w").close()
        long.result(timeout=60)


def inner(value):
    return 1 / (value - 2)


def outer(value):
    return inner(value)


def test_an_error_names_the_line_in_the_worker(pool):
    for call in (lambda: pool.map(outer, range(4)), lambda: pool.apply(outer, 2), lambda: pool.map_async(outer, [2]).get()):
        with pytest.raises(ZeroDivisionError) as caught:
            call()
        assert isinstance(caught.value.__cause__, hpvm.RemoteTraceback)
        text = "".join(traceback.format_exception(type(caught.value), caught.value, caught.tb))
        assert "in inner" in text and "return 1 / (value - 2)" in text, text


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def raise_unpicklable():
    raise Unpicklable(1, 2)


def test_an_error_that_cannot_be_pickled_has_its_line_too(pool):
    with pytest.raises(RuntimeError, match="Unpicklable: 1 2") as caught:
        pool.apply(raise_unpicklable)
    assert "in raise_unpicklable" in str(caught.value.__cause__)


def test_a_lost_job_is_named(pool):
    future = pool.executor.submit(die, "this one")
    with pytest.raises(hpvm.WorkerLost, match=r"die\('this one'\), the last one t[0-9a-f]+ on "):
        future.result(timeout=60)
    with pytest.raises(hpvm.WorkerLost, match=r"die\(3\), the last one"):
        pool.map(die, [3])


def test_results_may_come_later(pool):
    got, failed = [], []
    results = [
        pool.apply_async(pow, (2, 10), callback=got.append),
        pool.map_async(double, range(4), callback=got.append),
        pool.starmap_async(pow, [(2, 3), (3, 2)], callback=got.append),
        pool.map_async(double, [], callback=got.append),
    ]
    assert [result.get(timeout=60) for result in results] == [1024, [0, 2, 4, 6], [8, 9], []]
    assert all(result.ready() and result.successful() for result in results)
    assert sorted(map(str, got)) == sorted(map(str, [1024, [0, 2, 4, 6], [8, 9], []]))
    wrong = pool.map_async(fail, [1], error_callback=failed.append)
    with pytest.raises(ValueError, match="no 1"):
        wrong.get(timeout=60)
    assert not wrong.successful() and isinstance(failed[0], ValueError)
    late = pool.apply_async(time.sleep, (0.5,))
    with pytest.raises(multiprocessing.TimeoutError):
        late.get(timeout=0.001)
    late.wait()


def remember(value):
    global remembered
    remembered = value


def recall(_):
    return remembered


def test_each_worker_is_initialized():
    with hpvm.Pool(2, initializer=remember, initargs=(7,)) as pool:
        assert pool.map(recall, range(10), chunksize=1) == [7] * 10
        hpvm.send_signal(pool.executor.workers[0], 9)
        assert pool.map(recall, range(10), chunksize=1) == [7] * 10
    with pytest.raises(TypeError):
        hpvm.Executor(1, initializer=3)


def test_an_initializer_that_fails_fails_the_jobs():
    with hpvm.Executor(1, initializer=fail, initargs=(5,)) as executor:
        with pytest.raises(ValueError, match="no 5"):
            executor.submit(double, 1).result(timeout=60)


def test_functions_without_a_module_go_with_their_code(pool):
    pytest.importorskip("cloudpickle")
    offset = 3
    assert pool.map(lambda value: value + offset, range(3)) == [3, 4, 5]

    class Local:
        def __init__(self, value):
            self.value = value

    assert pool.map(lambda value: Local(value), [8])[0].value == 8


def test_without_cloudpickle_the_error_says_so(pool, monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(pickle.PicklingError, match=r"pip install 'hpvm\[notebook\]'"):
        pool.map(lambda value: value, [1])
    assert pool.map(double, [1]) == [2]


SESSION = """
import hpvm
def f(x): return Thing(x + 1)
class Thing:
    def __init__(self, value): self.value = value
with hpvm.Pool(2) as p:
    print([thing.value for thing in p.map(f, range(3))])
"""


def test_functions_of_an_interactive_session_work():
    pytest.importorskip("cloudpickle")
    done = subprocess.run([sys.executable, "-"], input=SESSION, capture_output=True, text=True, timeout=120)
    assert done.stdout == "[1, 2, 3]\n", done


def speak(value):
    print("hello", value, flush=True)
    print("to stderr", value, file=sys.stderr, flush=True)
    return value


def test_what_workers_print_appears_with_their_tids(capfd):
    with hpvm.Pool(1) as pool:
        [tid] = pool.executor.workers
        assert pool.map(speak, [3]) == [3]
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == [f"[t{tid:x}] hello 3", f"[t{tid:x}] to stderr 3"]


def test_output_goes_where_it_is_wanted(capfd):
    heard = []
    for output in ("plain", "log", lambda tid, line: heard.append(line)):
        with hpvm.Pool(2, output=output) as pool:
            assert pool.map(speak, [1, 2]) == [1, 2]
        lines = sorted(capfd.readouterr().out.splitlines())
        assert lines == (["hello 1", "hello 2", "to stderr 1", "to stderr 2"] if output == "plain" else [])
    assert sorted(heard) == ["hello 1", "hello 2", "to stderr 1", "to stderr 2"]
    with pytest.raises(ValueError, match="not 'loud'"):
        hpvm.Pool(1, output="loud")


def last_words(_):
    sys.stdout.write("no line")
    sys.stdout.flush()
    os.kill(os.getpid(), 9)


def test_the_last_words_of_a_lost_worker_appear(capfd):
    with hpvm.Executor(1, output="plain") as executor:
        with pytest.raises(hpvm.WorkerLost):
            executor.submit(last_words, 1).result(timeout=60)
    assert capfd.readouterr().out.splitlines() == ["no line"] * 5


def fail_first(value, folder):
    """Fails the first two times with each value."""
    mark = os.path.join(folder, f"{value}-")
    tries = len([name for name in os.listdir(folder) if name.startswith(f"{value}-")])
    open(f"{mark}{tries}", "w").close()
    if tries < 2:
        raise ValueError(f"try {tries}")
    return value


def test_a_call_that_fails_is_tried_again(pool, tmp_path):
    items = [(number, str(tmp_path)) for number in range(4)]
    with pytest.raises(ValueError, match="try 1"):
        pool.starmap(fail_first, items[:1], retries=1)
    assert pool.starmap(fail_first, items, retries=2) == list(range(4))
    with pytest.raises(ValueError, match="0 or more"):
        pool.map(double, [1], retries=-1)


def test_progress_is_shown_on_a_terminal_or_by_tqdm(pool, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert pool.map(double, range(50), progress=True) == list(range(0, 100, 2))
    assert capsys.readouterr().err.endswith("\r50 of 50, 0 s left \n")
    seen = []

    class Bar:
        def __init__(self, total):
            seen.append(total)

        def update(self, count):
            seen.append(count)

        def close(self):
            seen.append("closed")

    monkeypatch.setitem(sys.modules, "tqdm.auto", type(sys)("tqdm.auto"))
    monkeypatch.setattr(sys.modules["tqdm.auto"], "tqdm", Bar, raising=False)
    assert pool.map(double, range(5), progress=True) == list(range(0, 10, 2))
    assert seen[0] == 5 and sum(seen[1:-1]) == 5 and seen[-1] == "closed"
