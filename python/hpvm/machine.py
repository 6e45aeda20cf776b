"""The machine: hosts, tasks, its start and its end."""
from __future__ import annotations

import atexit
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Sequence, Union

from . import _hpvm, programs
from .errors import HostError, PvmError, check, error

#: Flags of `spawn`, as in pvm3.h.
TASK_HOST, TASK_ARCH = 1, 2
_AUTO_ERROR = 3
_DUPLICATE = -28
_CANT_START = -29
_NO_HOST = -6
#: The daemon sets it for each task that it starts.
_SPAWNED = "PVMEPID"

# Errors are exceptions; the library prints none of its own.
_hpvm.setopt(_AUTO_ERROR, 0)


@dataclass(frozen=True)
class Host:
    """A host of the machine."""

    tid: int
    name: str
    arch: str
    speed: int


@dataclass(frozen=True)
class TaskInfo:
    """A task, as the machine knows it."""

    tid: int
    parent: int
    host: int
    program: str
    pid: int


class _Guard:
    """Ends the machine that this process started, also if the process is killed."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # The shell waits for the end of a pipe that only this process holds open.
        command = 'read line; exec "$0" down >/dev/null 2>&1'
        self.shell = subprocess.Popen(
            ["/bin/sh", "-c", command, str(programs.path("pvm"))], stdin=subprocess.PIPE, start_new_session=True
        )

    def end(self) -> None:
        """Ends the machine now."""
        if os.getpid() != self.pid:
            return
        # The end of a machine ends its tasks, so this process is none by then.
        _hpvm.exit()
        self.shell.communicate()


_guard: Optional[_Guard] = None


def _start_again() -> None:
    """Starts a machine by the console: if that fails, too, it tells what the daemon says. The library only has a code."""
    command = [str(programs.path("pvm")), "up"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError:
        raise error("pvm_start_pvmd", _CANT_START) from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        said = "; ".join(line for line in lines if not line.startswith("pvm up:"))
        raise PvmError("pvm_start_pvmd", _CANT_START, said=said)


def start(hosts: Sequence[str] = (), keep: bool = False) -> bool:
    """Joins the user's machine; starts one if none runs.

    A machine that this call starts ends with this process, unless `keep` is true. Returns whether it was started.

    >>> import hpvm
    >>> hpvm.start()    # a machine was running already
    False
    """
    global _guard
    code = _hpvm.start_pvmd([])
    if code != _DUPLICATE:
        if code == _CANT_START:
            _start_again()
        else:
            check("pvm_start_pvmd", code)
        if not keep:
            _guard = _Guard()
            atexit.register(halt)
    check("pvm_mytid", _hpvm.mytid())
    if hosts:
        add_hosts(*hosts)
    return code != _DUPLICATE


def halt() -> None:
    """Ends the machine if this process has started it and it is to end with this process."""
    global _guard
    guard, _guard = _guard, None
    if guard:
        guard.end()


def mytid() -> int:
    """Joins the machine and returns the tid of this process.

    >>> import hpvm
    >>> hpvm.mytid() > 0
    True
    """
    return check("pvm_mytid", _hpvm.mytid())


def parent() -> Optional[int]:
    """Returns the tid of the task that spawned this one; None if no task did, also before there is a machine."""
    # A process that the daemon has not started has no parent, and need not join a machine to know that.
    if _SPAWNED not in os.environ:
        return None
    tid = _hpvm.parent()
    return tid if tid > 0 else None


def leave() -> None:
    """Leaves the machine (`pvm_exit`); the process goes on. At the end of the process this happens by itself."""
    check("pvm_exit", _hpvm.exit())


def hosts() -> List[Host]:
    """Returns the hosts of the machine.

    >>> import hpvm
    >>> len(hpvm.hosts())
    1
    """
    return [Host(tid, name, arch, speed) for tid, name, arch, speed, _ in _hpvm.config()]


def add_hosts(*names: Union[str, Iterable[str]]) -> None:
    """Adds hosts, by their names or lists of names; raises `HostError` for the first that cannot be added (the others are added)."""
    _change(names, True)


def delete_hosts(*names: Union[str, Iterable[str]]) -> None:
    """Deletes hosts, by their names or lists of names; raises `HostError` for the first that cannot be deleted."""
    _change(names, False)


def _change(names: Sequence[Union[str, Iterable[str]]], add: bool) -> None:
    call = "pvm_addhosts" if add else "pvm_delhosts"
    flat = [one for name in names for one in ([name] if isinstance(name, str) else name)]
    code, results = _hpvm.change_hosts(flat, add)
    check(call, code)
    for name, result in zip(flat, results):
        if add and result == _NO_HOST:
            raise HostError(call, result, name, "no address is known for this name (getent hosts NAME): is it spelled right?")
        check(call, result, name)


def tasks(host: int = 0) -> List[TaskInfo]:
    """Returns the tasks on a host (by its tid), or all."""
    found = _hpvm.tasks(host)
    return [TaskInfo(tid, parent, where, program, pid) for tid, parent, where, _, program, pid in found]


def spawn(
    program: Union[str, "os.PathLike[str]"],
    args: Sequence[str] = (),
    count: int = 1,
    host: Optional[str] = None,
    arch: Optional[str] = None,
    directory: Optional[str] = None,
) -> List[int]:
    """Starts `count` tasks of a program; returns their tids.

    `host` may name several hosts with commas between them. If not all tasks can be started, those that were are
    killed, and `PvmError` says why.

    >>> import hpvm, sys
    >>> tids = hpvm.spawn(sys.executable, ["-c", "import hpvm; hpvm.send(hpvm.parent(), 6 * 7)"])
    >>> hpvm.recv(tids[0])
    42
    """
    flags = TASK_HOST if host else TASK_ARCH if arch else 0
    where = (host or arch or "") + (f":{directory}" if directory else "")
    code, tids = _hpvm.spawn(os.fspath(program), list(args), flags, where, count)
    check("pvm_spawn", code, host)
    if code < count:
        for tid in tids[:code]:
            _hpvm.kill(tid)
        raise error(f"pvm_spawn of {os.fspath(program)}", min(tids), host)
    return tids


def python(code: str, args: Sequence[str] = (), count: int = 1, host: Optional[str] = None) -> List[int]:
    """Starts tasks that run Python code with this interpreter and this package.

    >>> import hpvm
    >>> [tid] = hpvm.python("hpvm.send(hpvm.parent(), sys.argv[1])", ["hello"])
    >>> hpvm.recv(tid)
    'hello'
    """
    place = str(programs.HERE.parent)
    begin = f"import sys; sys.path.append({place!r}); import hpvm\n"
    return spawn(sys.executable, ["-c", begin + code, *args], count, host)


def kill(tid: int) -> None:
    """Ends a task."""
    check("pvm_kill", _hpvm.kill(tid), f"t{tid:x}")


def send_signal(tid: int, number: int) -> None:
    """Sends a signal to a task."""
    check("pvm_sendsig", _hpvm.sendsig(tid, number), f"t{tid:x}")


def is_alive(tid: int) -> bool:
    """Returns whether a task is there.

    >>> import hpvm
    >>> hpvm.is_alive(hpvm.mytid())
    True
    """
    return _hpvm.pstat(tid) == 0


def settings() -> Dict[str, str]:
    """Returns where the daemon is, and the version of PVM's interface."""
    return {"pvmd": str(programs.path("pvmd")), "pvm": _hpvm.version()}


os.register_at_fork(after_in_child=_hpvm.after_fork)
