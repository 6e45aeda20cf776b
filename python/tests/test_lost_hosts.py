"""Pools and leaders that lose a host, or their daemon."""
import os
import pathlib
import subprocess
import sys

PROGRAMS = pathlib.Path(__file__).parents[2] / "docs/guide/programs"
#: Another daemon on this computer, as a second host.
BETA = "$beta id=beta ip=127.0.0.1"


def run(directory, code, *args):
    """Runs the code as a program with a machine of its own. Returns what it prints."""
    program = directory / "program.py"
    program.write_text(code)
    environment = {**os.environ, "PVM_TMP": str(directory), "PVM_RSH": str(PROGRAMS / "here.sh")}
    environment.pop("PVMSOCK", None)
    command = [sys.executable, str(program), *args]
    done = subprocess.run(command, timeout=300, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_pool_goes_on_when_the_host_of_workers_is_lost(tmp_path):
    code = """
import hpvm, sys, time

def double(value):
    return 2 * value

if __name__ == "__main__":
    hpvm.start([sys.argv[1]])
    with hpvm.Pool(4) as pool:
        results = pool.imap_unordered(double, range(2000), chunksize=1)
        some = [next(results) for _ in range(100)]
        [beta] = [host.tid for host in hpvm.hosts() if host.name == "beta"]
        there = len([task for task in hpvm.tasks(beta) if task.tid in pool.executor.workers])
        hpvm.delete_hosts("beta")
        while pool.executor.lost < there:
            time.sleep(0.01)
        print(there > 0, sorted(some + list(results)) == list(range(0, 4000, 2)), len(hpvm.hosts()))
"""
    assert run(tmp_path, code, BETA) == "True True 1\n"


def test_the_jobs_of_a_task_that_has_lost_its_daemon_fail(tmp_path):
    code = """
import hpvm, os, signal, time

hpvm.start()
executor = hpvm.Executor(1)
futures = [executor.submit(time.sleep, 3600) for _ in range(9)]
[pid] = [task.pid for task in hpvm.tasks() if task.tid in executor.workers]
daemon = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
os.kill(daemon, signal.SIGKILL)
print(all(isinstance(future.exception(), hpvm.PvmError) for future in futures))
try:
    executor.submit(abs, 1)
except hpvm.PvmError:
    print("no more jobs")
executor.shutdown()
"""
    assert run(tmp_path, code) == "True\nno more jobs\n"


def test_a_standby_goes_on_when_the_daemon_of_the_leader_is_killed(tmp_path):
    text = (PROGRAMS / "standby.py").read_text()
    # The leader cannot end before it is lost.
    endless = text.replace("STEPS = 10 ", "STEPS = 10**9 ")
    assert endless != text
    (tmp_path / "standby.py").write_text(endless)
    code = """
import hpvm, os, signal, sys, time

def wait_for(condition):
    while not condition():
        time.sleep(0.01)

def owner():
    return dict(hpvm.mailboxes("standby").get("standby", [])).get(0)

def has_ended(pid):
    try:
        return not open(f"/proc/{pid}/cmdline").read()
    except FileNotFoundError:
        return True

hpvm.start([sys.argv[1]])
[leader] = hpvm.spawn(sys.executable, [sys.argv[2]], host="beta")
# It starts its standby in step 0.
wait_for(lambda: owner() == leader and hpvm.get("standby")[0] >= 1)
[pid] = [task.pid for task in hpvm.tasks() if task.tid == leader]
daemon = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
step, _ = hpvm.get("standby")
os.kill(daemon, signal.SIGKILL)
wait_for(lambda: owner() != leader)
begin, _ = hpvm.get("standby")
wait_for(lambda: hpvm.get("standby")[0] > begin)
wait_for(lambda: has_ended(pid))
steps, total = hpvm.get("standby")
print(begin >= step, total == sum(number * number for number in range(10 * steps + 1)), len(hpvm.hosts()))
"""
    assert run(tmp_path, code, BETA, str(tmp_path / "standby.py")) == "True True 1\n"
