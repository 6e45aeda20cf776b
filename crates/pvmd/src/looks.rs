//! What the daemon can see of the tasks of this host without their help: their state lines, their doorbells, their processes.
use crate::connections::{self, Connections};
use pvm_core::host_look::{Activity, HostLoad, ProcessLook, Traffic};
use pvm_core::machine::Sight;
use pvm_core::tid::Tid;
use pvm_fmp::state_reading;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::AsFd;

/// The most of a file about a process that is read, in bytes.
const FILE_BYTES_MAX: u64 = 4096;
/// The signals that come by themselves: SIGALRM, SIGVTALRM, SIGPROF, SIGIO.
const TIMER_SIGNALS: [u32; 4] = [14, 26, 27, 29];

/// Looks at these tasks and their processes.
pub fn look(tasks: &[(Tid, i32)], connections: &Connections) -> BTreeMap<Tid, Sight> {
    tasks.iter().map(|(tid, process)| (*tid, sight(*tid, *process, connections))).collect()
}

/// Looks at the host. What the system does not tell is 0.
pub fn host_load() -> HostLoad {
    let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    HostLoad { cores: connections::cores(), ..parse_load(&read("/proc/loadavg"), &read("/proc/meminfo")) }
}

fn parse_load(average: &str, memory: &str) -> HostLoad {
    let running = average.split_ascii_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0.0);
    let bytes = |name: &str| {
        let line = memory.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
        kilobytes.unwrap_or(0u64).saturating_mul(1024)
    };
    HostLoad {
        cores: 0,
        running_hundredths: (running * 100.0f64).round() as u32,
        memory_bytes: bytes("MemTotal:"),
        memory_available_bytes: bytes("MemAvailable:"),
    }
}

fn sight(tid: Tid, pid: i32, connections: &Connections) -> Sight {
    let memory = connections.memory_of(tid);
    let traffic = memory.and_then(|memory| state_reading::traffic(memory.segment.as_fd()));
    let traffic = traffic.map_or_else(Traffic::default, |words| Traffic::of_words(&words));
    let seen = memory.and_then(|memory| Some((memory, state_reading::read(memory.segment.as_fd())?)));
    let mut process = process_look(pid);
    let (frames, has_backlog) = (connections.frames_to(tid), connections.backlog_of(tid) > 0);
    let Some((memory, line)) = seen else { return Sight { frames, has_backlog, process, traffic, ..Sight::default() } };
    // The order matters: a task tells that it is awake before it empties its doorbell.
    let is_rung = pvm_fmp::doorbell::has_rung(memory.bell.as_fd());
    let is_asleep = state_reading::still_sleeps(memory.segment.as_fd(), &line);
    // A program may have left the wait by a jump, and sleep elsewhere.
    let is_asleep = is_asleep && read(pid, "wchan").is_none_or(|place| may_be_poll(&place));
    if is_asleep {
        // Only who sleeps may be said to sleep for ever.
        process = process.and_then(|look| Some(ProcessLook { catches_timers: catches_timers(pid)?, ..look }));
    }
    Sight { words: line.words.to_vec(), is_asleep, is_rung, frames, has_backlog, traffic, process }
}

/// Reads what the system tells of a process; `None` if it tells nothing.
fn process_look(pid: i32) -> Option<ProcessLook> {
    parse(&read(pid, "stat")?)
}

/// Reads a file about a process.
fn read(pid: i32, name: &str) -> Option<String> {
    if pid <= 0 {
        return None;
    }
    let file = std::fs::File::open(format!("/proc/{pid}/{name}")).ok()?;
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Returns whether a process catches signals that timers or descriptors raise.
fn catches_timers(pid: i32) -> Option<bool> {
    caught(&read(pid, "status")?).map(|caught| TIMER_SIGNALS.iter().any(|signal| caught >> (signal - 1) & 1 == 1))
}

/// Returns whether a process that sleeps at that place in the system may sleep in `poll(2)`, as the library does. Some systems tell
/// no places.
fn may_be_poll(place: &str) -> bool {
    matches!(place.trim(), "" | "0") || place.contains("poll") || place.contains("select")
}

/// Finds the set of caught signals in `/proc/PID/status`.
fn caught(status: &str) -> Option<u64> {
    let set = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
    u64::from_str_radix(set.trim(), 16).ok()
}

/// Parses `/proc/PID/stat`. The name of the program, in parentheses, may hold any character.
fn parse(stat: &str) -> Option<ProcessLook> {
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let activity = match words.next()? {
        "S" => Activity::Sleeps,
        "T" | "t" => Activity::Stopped,
        "Z" | "X" | "x" => Activity::Ended,
        _ => Activity::Runs,
    };
    // The state was the third field; the times in user code and in the system are the 14th and 15th, the number of threads
    // is the 20th, the resident pages are the 24th.
    let user: u64 = words.nth(10)?.parse().ok()?;
    let system: u64 = words.next()?.parse().ok()?;
    let threads = words.nth(4)?.parse().ok()?;
    let pages: u64 = words.nth(3)?.parse().ok()?;
    let memory_bytes = pages.saturating_mul(rustix::param::page_size() as u64);
    Some(ProcessLook { activity, threads, ticks: user.checked_add(system)?, memory_bytes, catches_timers: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_the_times_and_the_threads_of_a_process_are_read() {
        let own = process_look(std::process::id() as i32).unwrap();
        // The first thread of a test program sleeps.
        assert!(
            own.threads >= 1 && own.memory_bytes > 1 << 16 && matches!(own.activity, Activity::Runs | Activity::Sleeps)
        );
        let text = "7 (a ) R (b) S 1 7 7 0 -1 4194304 90 0 0 0 12 30 0 0 20 0 3 0 55 1 2 3";
        let look = ProcessLook {
            activity: Activity::Sleeps,
            threads: 3,
            ticks: 42,
            memory_bytes: 2 * rustix::param::page_size() as u64,
            catches_timers: false,
        };
        assert_eq!(parse(text), Some(look));
        assert_eq!(parse(&text.replace(") S", ") T")).map(|look| look.activity), Some(Activity::Stopped));
        for broken in ["", "7 (a", "7 (a) S 1 2", "7 (a) S 1 7 7 0 -1 4194304 90 0 0 0 x 30 0 0 20 0 3 0"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
        assert_eq!((process_look(0), process_look(-1)), (None, None));
    }

    #[test]
    fn the_load_and_the_memory_of_a_host_are_read() {
        let load = parse_load("0.59 2.19 1.00 2/300 77\n", "MemTotal:   100 kB\nMemFree: 5 kB\nMemAvailable:  40 kB\n");
        let (memory_bytes, memory_available_bytes) = (100 << 10, 40 << 10);
        assert_eq!(load, HostLoad { cores: 0, running_hundredths: 59, memory_bytes, memory_available_bytes });
        assert_eq!(parse_load("", "MemTotal: x"), HostLoad::default());
        let own = host_load();
        assert!(own.cores >= 1 && own.memory_bytes >= own.memory_available_bytes && own.memory_available_bytes > 0);
    }

    #[test]
    fn the_signals_that_a_process_catches_are_read() {
        assert_eq!(catches_timers(std::process::id() as i32), Some(false));
        assert_eq!(caught("Name:\ta\nSigCgt:\t0000000000002000\nCapInh:\t0"), Some(1 << 13));
        assert_eq!((caught("SigCgt:\tx"), caught("")), (None, None));
        let places = ["0", "", "do_poll.constprop.0", "poll_schedule_timeout", "do_select", "hrtimer_nanosleep"];
        assert_eq!(places.map(may_be_poll), [true, true, true, true, true, false]);
    }
}
