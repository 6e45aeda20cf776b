"""The Parallel Virtual Machine for Python.

>>> import hpvm
>>> hpvm.start()            # joins the machine that runs
False
>>> [tid] = hpvm.python("hpvm.send(hpvm.parent(), hpvm.recv() ** 2)")
>>> hpvm.send(tid, 12)
>>> hpvm.recv(tid)
144
"""
from .calls import RemoteTraceback
from .errors import HostError, MessageError, NoMachine, NoSuchTask, PvmError, WorkerLost
from .executor import Executor
from .groups import Group
from .machine import (
    Host,
    TaskInfo,
    add_hosts,
    delete_hosts,
    halt,
    hosts,
    is_alive,
    kill,
    leave,
    mytid,
    parent,
    python,
    send_signal,
    settings,
    spawn,
    start,
    tasks,
)
from .mailboxes import get, get_message, mailboxes, put, remove
from .messages import Message, Packet, precv, probe, psend, recv, recv_message, send
from .pool import AsyncResult, Pool
from .watches import Watch, watch_exit, watch_hosts_added, watch_hosts_lost

__version__ = "0.1.0"
__all__ = [
    "AsyncResult", "Executor", "Group", "Host", "HostError", "Message", "MessageError", "NoMachine", "NoSuchTask", "Packet", "Pool",
    "PvmError", "RemoteTraceback", "TaskInfo", "Watch", "WorkerLost", "add_hosts", "delete_hosts", "get", "get_message", "halt", "hosts",
    "is_alive", "kill", "leave", "mailboxes", "mytid", "parent", "precv", "probe", "psend", "put", "python", "recv",
    "recv_message", "remove", "send", "send_signal", "settings", "spawn", "start", "tasks", "watch_exit",
    "watch_hosts_added", "watch_hosts_lost",
]  # fmt: skip
