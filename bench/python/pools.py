"""10,000 tasks of 1 ms on two workers: hpvm, multiprocessing, concurrent.futures or dask.distributed.

Use: pools.py NAME TASKS ROUNDS, NAME being hpvm, hpvm-killed, multiprocessing, futures or dask. Prints a line
`py_pool TASKS SECONDS s` for each round. A task computes for 1 ms of processor time, so nothing is gained where a
process waits for a core. `hpvm-killed` kills a worker each second, and prints how many were lost. `cargo xtask bench
--only python` starts this program.
"""
import sys
import threading
import time

WORKERS = 2
TASK_SECONDS = 0.001
KILL_EACH_SECONDS = 1.0
#: Tasks before the measured ones, which start and warm the workers.
WARM_TASKS = 200
#: The chunk size of concurrent.futures, which has 1 if none is given: that of multiprocessing's own rule.
CHUNKS_PER_WORKER = 4


def work(number):
    """Computes for a millisecond of this thread's processor time."""
    end = time.thread_time() + TASK_SECONDS
    while time.thread_time() < end:
        pass
    return number


def measure(name, tasks, rounds, run):
    """Prints the seconds of each round. Every result must be there once, in its place."""
    run(range(WARM_TASKS))
    for _ in range(rounds):
        began = time.perf_counter()
        results = run(range(tasks))
        seconds = time.perf_counter() - began
        if list(results) != list(range(tasks)):
            sys.exit(f"{name}: wrong results")
        print(f"py_pool {tasks} {seconds:.6g} s", flush=True)


def kill_workers(pool, is_over):
    """Kills a worker each second, whether it has started or not."""
    import hpvm

    turn = 0
    while not is_over.wait(KILL_EACH_SECONDS):
        workers = pool.executor.workers
        if workers:
            hpvm.send_signal(workers[turn % len(workers)], 9)
            turn += 1


def run_hpvm(name, tasks, rounds):
    import hpvm

    hpvm.start()
    with hpvm.Pool(WORKERS) as pool:
        is_over = threading.Event()
        if name == "hpvm-killed":
            threading.Thread(target=kill_workers, args=(pool, is_over), daemon=True).start()
        measure(name, tasks, rounds, lambda items: pool.map(work, items))
        is_over.set()
        print(f"py_pool_lost {tasks} {pool.executor.lost} workers", flush=True)


def run_multiprocessing(name, tasks, rounds):
    import multiprocessing

    with multiprocessing.Pool(WORKERS) as pool:
        measure(name, tasks, rounds, lambda items: pool.map(work, items))


def run_futures(name, tasks, rounds):
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(WORKERS) as pool:
        chunk = max(1, tasks // (WORKERS * CHUNKS_PER_WORKER))
        measure(name, tasks, rounds, lambda items: list(pool.map(work, items, chunksize=min(chunk, len(items) // 2))))


def run_dask(name, tasks, rounds):
    from distributed import Client

    with Client(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, silence_logs=50) as client:
        measure(name, tasks, rounds, lambda items: client.gather(client.map(work, items, pure=False)))


SYSTEMS = {
    "hpvm": run_hpvm,
    "hpvm-killed": run_hpvm,
    "multiprocessing": run_multiprocessing,
    "futures": run_futures,
    "dask": run_dask,
}

if __name__ == "__main__":
    SYSTEMS[sys.argv[1]](sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
