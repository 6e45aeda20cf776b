"""Messages between two Python tasks: hpvm, or mpi4py on any MPI. Prints lines `name size value unit`.

Use: messages.py hpvm|mpi MEASURE REPETITION_MS REPETITIONS, MEASURE being objects, buffers or arrays. The loops, the
data and the warm-up are the same for both; a value is half of the time of a round trip. `cargo xtask bench --only
python` starts this program.
"""
import os
import sys
import time

import numpy

TAG = 4
#: The sizes of buffers and of arrays, in bytes.
BUFFER_SIZES = (8, 64, 1024, 16384)
ARRAY_SIZES = (1 << 20, 4 << 20, 16 << 20, 64 << 20)
#: Objects as programs send them: a work item, a list of results, and an array.
OBJECTS = {
    "int": 7,
    "dict": {"step": 3, "name": "site", "residual": 0.125, "done": False},
    "list": list(range(100)),
}
WARM_EXCHANGES = 50
WARM_EXCHANGES_LONG = 3
#: From this size on, messages are long: few of them warm everything up.
LONG_BYTES_MIN = 1 << 20


class Hpvm:
    """The calls of hpvm."""

    def __init__(self):
        import hpvm

        self.hpvm = hpvm
        self.rank = 0 if hpvm.parent() is None else 1
        if self.rank == 0:
            hpvm.mytid()
            [self.partner] = hpvm.spawn(sys.executable, [__file__, *sys.argv[1:]])
        else:
            self.partner = hpvm.parent()

    def objects(self):
        """Returns the functions that send and receive an object."""
        send, recv, partner = self.hpvm.send, self.hpvm.recv, self.partner
        return lambda value: send(partner, value, TAG), lambda: recv(partner, TAG)

    def buffers(self):
        """Returns the functions that send memory, and receive into memory."""
        psend, precv, partner = self.hpvm.psend, self.hpvm.precv, self.partner
        return lambda data: psend(partner, data, TAG), lambda data: precv(data, partner, TAG)


class Mpi:
    """The calls of mpi4py."""

    def __init__(self):
        from mpi4py import MPI

        self.world = MPI.COMM_WORLD
        self.rank = self.world.rank
        self.partner = 1 - self.rank

    def objects(self):
        """Returns the functions that send and receive an object."""
        send, recv, partner = self.world.send, self.world.recv, self.partner
        return lambda value: send(value, partner, TAG), lambda: recv(None, partner, TAG)

    def buffers(self):
        """Returns the functions that send memory, and receive into memory."""
        send, recv, partner = self.world.Send, self.world.Recv, self.partner
        return lambda data: send(data, partner, TAG), lambda data: recv(data, partner, TAG)


def exchange_objects(calls, value):
    """Returns the function that makes `count` round trips of an object."""
    send, recv = calls.objects()
    if calls.rank == 0:

        def exchange(count):
            for _ in range(count):
                send(value)
                recv()

    else:

        def exchange(count):
            for _ in range(count):
                recv()
                send(value)

    return exchange, recv, send


def exchange_buffers(calls, size):
    """Returns the function that makes `count` round trips of a buffer."""
    send, recv = calls.buffers()
    out, into = numpy.full(size, calls.rank + 1, "u1"), numpy.zeros(size, "u1")
    if calls.rank == 0:

        def exchange(count):
            for _ in range(count):
                send(out)
                recv(into)

    else:

        def exchange(count):
            for _ in range(count):
                recv(into)
                send(out)

    return exchange, into


def measure(calls, name, size, exchange, effort):
    """Prints the time of each repetition. Task 0 decides how many exchanges it has."""
    send, recv = calls.objects()
    repetition_ms, repetitions = effort
    warm = WARM_EXCHANGES_LONG if size >= LONG_BYTES_MIN else WARM_EXCHANGES
    exchange(warm)
    if calls.rank != 0:
        count = recv()
        while count:
            exchange(count)
            count = recv()
        return
    count = warm
    began = time.perf_counter()
    send(count)
    exchange(count)
    each = (time.perf_counter() - began) / count
    count = max(1, int(repetition_ms * 1e-3 / each))
    for _ in range(repetitions):
        send(count)
        began = time.perf_counter()
        exchange(count)
        print(f"{name} {size} {(time.perf_counter() - began) / count / 2 * 1e6:.6g} us", flush=True)
    send(0)


def main():
    """Runs one measure."""
    kind, what, repetition_ms, repetitions = sys.argv[1:]
    calls = Hpvm() if kind == "hpvm" else Mpi()
    os.sched_setaffinity(0, {calls.rank % os.cpu_count()})
    effort = float(repetition_ms), int(repetitions)
    if what == "objects":
        for name, value in OBJECTS.items():
            exchange, recv, send = exchange_objects(calls, value)
            # What arrives is what was sent.
            for turn in (0, 1):
                if calls.rank == turn:
                    send(value)
                else:
                    assert recv() == value
            measure(calls, f"py_object_{name}", 0, exchange, effort)
    elif what == "objects-arrays":
        for size in ARRAY_SIZES:
            exchange, recv, send = exchange_objects(calls, numpy.ones(size // 8))
            measure(calls, "py_object_array", size, exchange, effort)
    else:
        for size in BUFFER_SIZES if what == "buffers" else ARRAY_SIZES:
            exchange, into = exchange_buffers(calls, size)
            exchange(1)
            assert (into == 2 - calls.rank).all()
            measure(calls, "py_buffer", size, exchange, effort)


if __name__ == "__main__":
    main()
