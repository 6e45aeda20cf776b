"""One machine for all tests, in a directory of its own; it ends with pytest."""
import os
import shutil
import signal
import tempfile

_directory = tempfile.mkdtemp(prefix="hpvm-python-")
os.environ.update(PVM_TMP=_directory, PVM_ALLOW_ROOT="1")
for _name in ("PVMSOCK", "PVM_VMID", "PVM_ROOT", "PVMEPID", "XDG_RUNTIME_DIR"):
    os.environ.pop(_name, None)

# A shell that starts a command in the background lets it ignore Ctrl-C, and so all of its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import hpvm  # noqa: E402

_is_mine = hpvm.start()


def pytest_sessionstart(session):
    assert _is_mine, "the tests need a machine of their own"


def pytest_unconfigure(config):
    hpvm.halt()
    shutil.rmtree(_directory, ignore_errors=True)
