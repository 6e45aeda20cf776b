"""`python -m hpvm.demo`: workers add up a series; one of them is killed, and the result is right all the same."""
from __future__ import annotations

import math
import time

import hpvm

ITEMS = 400
TERMS = 20_000


def part(number: int) -> float:
    """Returns a part of the series 4 - 4/3 + 4/5 - ... that is pi."""
    return sum((4.0 if k % 2 == 0 else -4.0) / (2 * k + 1) for k in range(number * TERMS, (number + 1) * TERMS))


def main() -> int:
    """Runs the demo; returns the exit status."""
    started = hpvm.start()
    print("a machine was started" if started else "a machine runs already", "on", hpvm.hosts()[0].name)
    with hpvm.Pool(4) as pool:
        print("workers:", " ".join(f"t{tid:x}" for tid in pool.executor.workers))
        began, results = time.perf_counter(), []
        for result in pool.imap_unordered(part, range(ITEMS), chunksize=4):
            results.append(result)
            if len(results) == ITEMS // 4:
                victim = pool.executor.workers[0]
                print(f"{len(results)} of {ITEMS} results are there; worker t{victim:x} is killed")
                hpvm.send_signal(victim, 9)
        seconds = time.perf_counter() - began
    total = math.fsum(results)
    print(f"{len(results)} results, workers lost: {pool.executor.lost}, {seconds:.1f} s")
    print(f"pi = {total:.6f}, error {abs(total - math.pi):.1e}")
    return 0 if len(results) == ITEMS and abs(total - math.pi) < 1e-6 and pool.executor.lost >= 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
