"""Threads, forks, signals, event loops, and the end of a process."""
import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import hpvm
import hpvm.aio


def run(code, **more):
    return subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True, **more)


def test_a_waiting_thread_lets_others_send_and_receive():
    got = []
    threads = [threading.Thread(target=lambda tag=tag: got.append(hpvm.recv(tag=tag, timeout=20))) for tag in (51, 52)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    began = time.monotonic()
    for tag in (52, 51):
        hpvm.send(hpvm.mytid(), tag, tag)
    for thread in threads:
        thread.join()
    assert sorted(got) == [51, 52] and time.monotonic() - began < 5


def test_many_threads_get_each_message_once():
    def work(tag):
        for number in range(200):
            hpvm.send(hpvm.mytid(), (tag, number), tag)
            assert hpvm.recv(tag=tag, timeout=20) == (tag, number)
        done.append(tag)

    done = []
    threads = [threading.Thread(target=work, args=(tag,)) for tag in range(60, 64)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(done) == [60, 61, 62, 63]


@pytest.mark.parametrize("wait", ["hpvm.recv()", "threading.Thread(target=hpvm.recv, daemon=True).start(); hpvm.recv()"])
def test_ctrl_c_ends_a_wait_and_no_message_is_lost(wait):
    code = f"""
import hpvm, os, signal, threading
hpvm.mytid()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    {wait}
except KeyboardInterrupt:
    hpvm.send(hpvm.mytid(), "still here", 5)
    print(hpvm.recv(tag=5) if {wait == "hpvm.recv()"} else "still here", flush=True)
os._exit(0)
"""
    done = run(code)
    assert done.stdout == "still here\n", done.stderr


def test_the_first_call_beside_a_waiting_thread_does_not_wait_with_it():
    code = """
import hpvm, os, threading, time
hpvm.mytid()
threading.Thread(target=hpvm.recv, daemon=True).start()
time.sleep(0.2)
began = time.monotonic()
hpvm.probe()
print(time.monotonic() - began, flush=True)
os._exit(0)
"""
    assert float(run(code).stdout) < 0.5


def test_a_forked_child_is_a_task_of_its_own():
    code = """
import hpvm, os
me = hpvm.mytid()
hpvm.send(me, "kept", 1)
message = hpvm.recv_message(tag=1)
pid = os.fork()
if pid == 0:
    try:
        message.object()
    except ValueError as error:
        assert "parent process" in str(error)
    assert hpvm.mytid() != me
    hpvm.send(me, "from the child")
    os._exit(0)
print(message.object(), "and", hpvm.recv(timeout=20))
os.waitpid(pid, 0)
"""
    done = run(code)
    assert done.stdout == "kept and from the child\n", done.stderr


def test_a_process_that_ends_without_leaving_is_no_task_any_more():
    done = run("import hpvm; print(hpvm.mytid())")
    tid = int(done.stdout)
    with hpvm.watch_exit([tid]) as watch:
        assert watch.wait(10) == tid and done.returncode == 0 and done.stderr == ""


def test_the_interpreter_ends_while_an_executor_works():
    began = time.monotonic()
    done = run("import hpvm, time; e = hpvm.Executor(1); e.submit(time.sleep, 30); e.submit(time.sleep, 30)")
    assert done.returncode == 0 and time.monotonic() - began < 20, done.stderr


def test_a_machine_ends_with_the_process_that_started_it(tmp_path):
    environment = {**os.environ, "PVM_TMP": str(tmp_path)}
    for end in ("", "; import os; os.kill(os.getpid(), 9)"):
        environment.pop("PVMSOCK", None)
        done = run(f"import hpvm; print(hpvm.start(), flush=True){end}", env=environment)
        assert done.stdout == "True\n", done.stderr
        until = time.monotonic() + 15
        while any(name.startswith("pvmd.") for name in os.listdir(tmp_path)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(name.startswith("pvmd.") for name in os.listdir(tmp_path))


def test_without_a_machine_the_error_says_how_to_start_one(tmp_path):
    environment = {**os.environ, "PVM_TMP": str(tmp_path)}
    environment.pop("PVMSOCK", None)
    done = run("import hpvm; hpvm.mytid()", env=environment)
    assert "hpvm.errors.NoMachine: pvm_mytid" in done.stderr and "hpvm.start() starts a machine" in done.stderr


def test_a_daemon_that_does_not_start_says_why(tmp_path):
    environment = {**os.environ, "PVM_TMP": str(tmp_path / "missing")}
    environment.pop("PVMSOCK", None)
    code = "import hpvm, pickle\ntry: hpvm.start()\nexcept hpvm.PvmError as e: print(pickle.loads(pickle.dumps(e)))"
    done = run(code, env=environment)
    assert "the daemon does not start [PvmCantStart]; pvmd: " in done.stdout, done.stderr
    assert str(tmp_path / "missing") in done.stdout


def test_a_program_asks_for_its_parent_before_there_is_a_machine(tmp_path):
    environment = {**os.environ, "PVM_TMP": str(tmp_path)}
    environment.pop("PVMSOCK", None)
    done = run("import hpvm; print(hpvm.parent(), hpvm.start(), hpvm.parent())", env=environment)
    assert (done.stdout, done.stderr) == ("None True None\n", "")


def test_coroutines_receive_while_the_loop_goes_on():
    async def main():
        waiting = [asyncio.ensure_future(hpvm.aio.recv(tag=tag, timeout=20)) for tag in (71, 72, 73)]
        [tid] = hpvm.python("hpvm.send(hpvm.parent(), 'from a task', 73)")
        await asyncio.sleep(0.05)
        hpvm.send(hpvm.mytid(), "b", 72)
        threading.Timer(0.1, hpvm.send, (hpvm.mytid(), "a", 71)).start()
        with pytest.raises(asyncio.TimeoutError, match="no message within 0.05 s"):
            await hpvm.aio.recv(tag=79, timeout=0.05)
        return await asyncio.gather(*waiting)

    assert asyncio.run(main()) == ["a", "b", "from a task"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
