"""Groups of tasks: barriers, and data of all members.

>>> import hpvm, numpy
>>> group = hpvm.Group("alone")
>>> group.instance, group.size
(0, 1)
>>> group.barrier(1)
>>> group.reduce(numpy.array([1.5, 2.0]), numpy.add)
array([1.5, 2. ])
>>> group.leave()
"""
from __future__ import annotations

from typing import Any, List, Optional

from . import _hpvm
from .errors import check
from .messages import dumps, kind

#: The tag of collective calls if none is given; the library keeps them apart from messages of the program.
TAG = 1
_OPERATIONS = {"maximum": 0, "minimum": 1, "add": 2, "multiply": 3}
#: PVM's types that its own operations can combine.
_COMBINED = {2, 3, 4, 5, 6, 7, 8}


class Group:
    """A group that this task has joined. All members must call a collective method.

    Members in C or Fortran call `pvm_barrier`, `pvm_gather`, `pvm_scatter` and `pvm_reduce` with the same type, count,
    root and tag. The tag is 1 if none is given here.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        #: The number of this member.
        self.instance = check("pvm_joingroup", _hpvm.joingroup(name))

    @property
    def size(self) -> int:
        """The number of members."""
        return check("pvm_gsize", _hpvm.gsize(self.name))

    def tid(self, instance: int) -> int:
        """Returns the tid of a member."""
        return check("pvm_gettid", _hpvm.gettid(self.name, instance))

    def tids(self) -> List[int]:
        """Returns the tids of all members; members must not leave meanwhile."""
        return [self.tid(instance) for instance in range(self.size)]

    def leave(self) -> None:
        """Leaves the group."""
        check("pvm_lvgroup", _hpvm.lvgroup(self.name))

    def barrier(self, count: int = -1) -> None:
        """Waits until `count` members (-1: all) have called it. Ctrl-C takes effect when the barrier ends."""
        _hpvm.barrier(self.name, count)

    def bcast(self, value: Any, tag: int = 0) -> None:
        """Sends an object to the other members, who receive it by `hpvm.recv`."""
        _hpvm.bcast_object(self.name, tag, dumps(value))

    def gather(self, data: Any, root: int = 0, tag: int = TAG) -> Optional[Any]:
        """Returns, at the root, an array with one row for each member's numpy array; None at the others."""
        import numpy

        data = numpy.ascontiguousarray(data)
        code, size = kind(data)
        rows = numpy.empty((self.size, *data.shape), data.dtype) if self.instance == root else None
        members = len(rows) if rows is not None else 1
        _hpvm.collect(False, rows, data, data.size, size, code, tag, self.name, root, members)
        return rows

    def scatter(self, rows: Optional[Any], into: Any, root: int = 0, tag: int = TAG) -> Any:
        """Stores in `into`, at each member, that member's row of the root's array; returns `into`."""
        import numpy

        code, size = kind(into)
        count = memoryview(into).nbytes // size
        data = numpy.ascontiguousarray(rows) if self.instance == root else None
        if data is not None and (data.dtype != numpy.asarray(into).dtype or len(data) != self.size):
            raise ValueError("the root needs one row for each member, of the type of `into`")
        members = self.size if data is not None else 1
        _hpvm.collect(True, into, data, count, size, code, tag, self.name, root, members)
        return into

    def reduce(self, data: Any, operation: Any, root: int = 0, tag: int = TAG) -> Optional[Any]:
        """Returns, at the root, the members' arrays combined by a numpy operator; None at the others.

        `numpy.add`, `multiply`, `maximum` and `minimum` of types that PVM combines are combined by PVM (complex
        numbers are compared by their absolute value); with any other operator (`numpy.logical_or`, `gcd`, ...) the
        root gathers the arrays and combines them in the order of the instances, so members in C call `pvm_gather`.
        """
        import numpy

        if not isinstance(operation, numpy.ufunc):
            # Before the others are kept waiting.
            raise TypeError(f"operation is a numpy operator, such as numpy.add or numpy.maximum, not {operation!r}")
        data = numpy.array(data, order="C", ndmin=1)
        code, size = kind(data)
        name = getattr(operation, "__name__", "")
        is_ordered = not numpy.iscomplexobj(data) or name in ("add", "multiply")
        if code in _COMBINED and is_ordered and getattr(numpy, name, None) is operation and name in _OPERATIONS:
            _hpvm.reduce(_OPERATIONS[name], data, size, code, tag, self.name, root)
            return data if self.instance == root else None
        rows = self.gather(data, root, tag)
        return None if rows is None else operation.reduce(rows, axis=0)
