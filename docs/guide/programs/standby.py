"""standby: adds the squares of 1 to 100. One task leads, another one on another host waits to take its place."""
import sys
import hpvm

STEPS = 10                                          # of ten numbers each


def stand_by(leader):
    """Waits for the end of the leader, and returns its state."""
    next(hpvm.watch_exit([leader]))
    if "standby" not in hpvm.mailboxes():
        sys.exit()                                  # The leader had finished.
    print("standby: goes on from step", hpvm.get("standby")[0], flush=True)
    return hpvm.get("standby")


def start_standby():
    """Starts a standby, on another host if there is one. Returns the watch of its end, or None if it cannot start."""
    here = next(task.host for task in hpvm.tasks() if task.tid == hpvm.mytid())
    others = ",".join(host.name for host in hpvm.hosts() if host.tid != here)
    try:
        return hpvm.watch_exit(hpvm.spawn(sys.executable, [__file__, "standby"], host=others or None))
    except hpvm.PvmError:
        return None                                 # That host was just lost: the next step tries again.


if __name__ == "__main__":
    hpvm.start(keep=True)                           # The machine outlives this task.
    first, total = stand_by(hpvm.parent()) if sys.argv[1:] == ["standby"] else (0, 0)
    standby = None
    with hpvm.Pool(2) as pool:                      # Its workers end with this task: the next leader has its own.
        for step in range(first, STEPS):
            hpvm.put("standby", (step, total), persistent=True, overwritable=True)
            if standby is None or standby.wait(0):
                standby = start_standby()
            if step == STEPS // 2 and sys.argv[1:2] == ["lose"]:
                hpvm.delete_hosts(sys.argv[2])      # for a trial: ends the tasks there
            total += sum(pool.starmap(pow, [(number, 2) for number in range(10 * step + 1, 10 * step + 11)]))
    print("standby: sum", total, flush=True)
    hpvm.remove("standby")
