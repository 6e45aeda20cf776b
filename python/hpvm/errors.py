"""The exceptions: what failed, and what may help.

>>> import hpvm
>>> try:
...     hpvm.spawn("/no/such/program")
... except hpvm.PvmError as error:
...     print(error.name, "--", error.cure)
PvmNoFile -- pass an absolute path that exists there
"""
from __future__ import annotations

from typing import Optional


class PvmError(Exception):
    """A call of PVM failed.

    ``code`` is PVM's number, ``name`` its name, ``call`` the call, ``host`` the host or task it is about (or None),
    and ``cure`` what may help, or what the program that failed has said.
    """

    code: int = 0

    def __init__(self, call: str, code: int, host: Optional[str] = None, said: Optional[str] = None) -> None:
        name, meaning, cure = TEXTS.get(code, (f"error {code}", "unknown error", "see the daemon's log"))
        self._said, cure = said, said or cure
        self.call, self.code, self.host, self.name, self.meaning, self.cure = call, code, host, name, meaning, cure
        place = f" ({host})" if host else ""
        super().__init__(f"{call}{place}: {meaning} [{name}]; {cure}")

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return type(self), (self.call, self.code, self.host, self._said)


class NoMachine(PvmError):
    """No daemon runs for this user."""


class HostError(PvmError):
    """A host cannot be added, does not exist, or has failed."""


class NoSuchTask(PvmError):
    """A task does not exist (any more)."""


class MessageError(PvmError):
    """A message does not hold what was to be unpacked."""


class WorkerLost(Exception):
    """A work item was lost too often: each worker that had it ended before it answered."""


#: For each code: its name, its meaning, and what may help.
TEXTS = {
    -2: ("PvmBadParam", "a value is out of range", "check the tids, tags and lengths of the call"),
    -3: ("PvmMismatch", "members disagree", "all members must pass the same count"),
    -4: ("PvmOverflow", "a number does not fit its type", "unpack it as a wider type"),
    -5: ("PvmNoData", "the message holds less than was asked for", "unpack in the order and types of the packing"),
    -6: ("PvmNoHost", "the machine has no such host", "hpvm.hosts() lists the hosts; hpvm.add_hosts() adds one"),
    -7: ("PvmNoFile", "the program was not found or cannot be executed", "pass an absolute path that exists there"),
    -8: ("PvmDenied", "permission denied", "the entry belongs to another task, or exists already"),
    -10: ("PvmNoMem", "not enough memory", "send less at once; a message holds less than 2 GiB"),
    -12: ("PvmBadMsg", "the message holds something else", "objects are received by recv, typed items by recv_message"),
    -14: ("PvmSysErr", "the daemon does not answer, or none is running", "hpvm.start() starts a machine"),
    -15: ("PvmNoBuf", "there is no such buffer", "receive or make a message first"),
    -16: ("PvmNoSuchBuf", "there is no such buffer", "the message was freed, or the process has left the machine"),
    -17: ("PvmNullGroup", "a group needs a name", "pass a name that is not empty"),
    -18: ("PvmDupGroup", "the task is a member already", "join once"),
    -19: ("PvmNoGroup", "there is no group of that name", "a task must join it first"),
    -20: ("PvmNotInGroup", "the task is not a member", "join the group first"),
    -21: ("PvmNoInst", "the group has no such instance", "instances are 0 to size - 1"),
    -22: ("PvmHostFail", "the host has failed", "delete and add it again when it runs"),
    -23: ("PvmNoParent", "the task has no parent", "it was not spawned by a task"),
    -24: ("PvmNotImpl", "the call is not possible here", "do not wait inside a message handler"),
    -25: ("PvmDSysErr", "the daemon met a system error", "read the daemon's log (pvml.UID in PVM_TMP)"),
    -26: ("PvmBadVersion", "the daemon is of another version", "end the old machine: echo halt | pvm"),
    -27: ("PvmOutOfRes", "a limit was reached", "raise `ulimit -n` if it is low; docs/limits.md names each limit and its setting"),
    -28: ("PvmDupHost", "the host or machine is there already", "use it"),
    -29: ("PvmCantStart", "the daemon does not start", "try `pvmd` by hand, on another host by ssh; it says why"),
    -30: ("PvmAlready", "this is under way already", "wait until it is done"),
    -31: ("PvmNoTask", "there is no such task", "it has ended; hpvm.watch_exit() tells when tasks end"),
    -32: ("PvmNotFound", "there is no such entry", "hpvm.mailboxes() lists the entries"),
    -33: ("PvmExists", "this exists already", "choose another name"),
}

_CLASSES = {-6: HostError, -22: HostError, -31: NoSuchTask, -5: MessageError, -12: MessageError, -3: MessageError}


def error(call: str, code: int, host: Optional[str] = None) -> PvmError:
    """Returns the exception for an error code of a call."""
    kind = _CLASSES.get(code, PvmError)
    if code == -14:
        kind = NoMachine
    if host is not None and code in (-28, -29, -30, -26):
        kind = HostError
    return kind(call, code, host)


def check(call: str, code: int, host: Optional[str] = None) -> int:
    """Returns a result that is not an error code; raises the exception otherwise."""
    if code < 0:
        raise error(call, code, host)
    return code
