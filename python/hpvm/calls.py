"""Calls that go to workers: how they are pickled, and how their errors come back."""
from __future__ import annotations

import os
import pickle
import reprlib
import sys
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import machine
from .errors import PvmError
from .messages import dumps, loads

_NEEDS_CLOUDPICKLE = (
    "functions of an interactive session, lambdas and functions inside functions need cloudpickle: "
    "pip install 'hpvm[notebook]'"
)


class RemoteTraceback(Exception):
    """Where an error of a worker happened; it is the `__cause__` of the error."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def is_interactive() -> bool:
    """Returns whether the main program is typed in a session (`python -i`, IPython, Jupyter): no worker can import it."""
    main = sys.modules.get("__main__")
    return getattr(main, "__spec__", None) is None and not os.path.isfile(getattr(main, "__file__", None) or "")


def by_value(value: Any) -> List[Any]:
    """Pickles functions and classes with their code. Returns the parts of the object, as `dumps` does."""
    try:
        import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise pickle.PicklingError(_NEEDS_CLOUDPICKLE) from None
    kept: List[pickle.PickleBuffer] = []
    data = cloudpickle.dumps(value, protocol=5, buffer_callback=kept.append)
    return [data, *kept]


def pack(value: Any) -> List[Any]:
    """Pickles something for workers, which have imported this process's main program if that is a file."""
    if not is_interactive():
        return pack_result(value)
    try:
        return by_value(value)
    except pickle.PicklingError:
        # What is imported from modules needs no cloudpickle.
        if _names_main(value):
            raise
        return dumps(value)


def pack_result(value: Any) -> List[Any]:
    """Pickles something; lambdas and what is local with their code."""
    try:
        return dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        try:
            return by_value(value)
        except pickle.PicklingError as reason:
            # Without cloudpickle. Something else, such as a lock, nobody can pickle.
            text = str(error)
            if any(word in text for word in ("lambda", "<locals>", "local object", "__main__")):
                raise pickle.PicklingError(f"{text}: {reason}") from None
            raise error from None


def _names_main(value: Any) -> bool:
    """Returns whether the pickle of something names the main program, which no worker has."""
    try:
        return any(b"__main__" in bytes(part) for part in dumps(value)[:1])
    except Exception:
        return True


def describe(function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> str:
    """Returns a call in few words."""
    name = getattr(function, "__qualname__", None) or reprlib.repr(function)
    words = [*map(reprlib.repr, args), *(f"{key}={reprlib.repr(value)}" for key, value in kwargs.items())]
    return f"{name}({', '.join(words)})"


def pack_error(error: BaseException) -> List[Any]:
    """Pickles an error with the place where it was raised."""
    # The first line of the traceback is the worker's own.
    trace = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, trace))
    try:
        parts = pack_result((error, text))
        loads(parts)
        return parts
    except Exception:
        # An exception that cannot be pickled, or not be made again.
        return dumps((RuntimeError(f"{type(error).__name__}: {error}"), text))


def unpack_error(value: Any) -> BaseException:
    """Returns the error that `pack_error` has pickled."""
    error, text = value
    if isinstance(error, BaseException):
        error.__cause__ = RemoteTraceback(text)
        return error
    return RuntimeError(f"a worker has failed with {reprlib.repr(error)}")


def host_tid(tid: int) -> int:
    """Returns the tid of the host of a task."""
    return tid & ~0x3FFFF


def host_of(tid: int) -> Optional[str]:
    """Returns the name of the host of a task; None if it has left the machine."""
    try:
        return next((host.name for host in machine.hosts() if host.tid == host_tid(tid)), None)
    except PvmError:
        return None
