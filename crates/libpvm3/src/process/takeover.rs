//! The takeover of a task by a child of `fork()` (D11).
//!
//! While the parent lives, a child that calls the library becomes a task of its own. If the parent has ended without
//! leaving the machine, and has not used its task since the fork, the child's copy of the task is still valid: the
//! child takes the task over. Parent and children share a counter, which grows when the parent uses the task after a
//! fork, and when a child takes the task over. So only one child can take the task over.
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::{Duration, Instant};

/// How long a child waits for a parent that runs, since this parent may be about to end.
const RUNNING_WAIT_MAX: Duration = Duration::from_millis(250);
/// How long a child waits for a parent that is ending.
const ENDING_WAIT_MAX: Duration = Duration::from_secs(10);
/// The pause between two checks of the parent's state.
const CHECK_PAUSE: Duration = Duration::from_millis(1);
/// If this many checks in a row find the parent asleep, the child assumes that the parent goes on living.
const ASLEEP_CHECKS: u32 = 3;
/// A value that the counter never has.
const NEVER: u32 = u32::MAX;
/// The kernel's flag for a process that is ending (`PF_EXITING`).
const FLAG_ENDING: u32 = 0x4;

/// The counter of uses of the task, in memory that the children share; made at the first fork.
static USES: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// The value of the counter at the last fork of this process; in a child that has not forked, the value at the fork
/// that made the child.
static SEEN: AtomicU32 = AtomicU32::new(NEVER);

fn uses() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a page that is never unmapped.
    // Pair `uses page made`.
    unsafe { USES.load(Acquire).as_ref() }
}

/// Notes that this process forks. `mark` marks the task, and returns whether the child may use its copy of the task.
pub fn before_fork(mark: impl FnOnce() -> bool) {
    if uses().is_none() {
        make_page();
    }
    // Pair `task used`.
    let seen = uses().map_or(NEVER, |uses| uses.load(Acquire));
    SEEN.store(if mark() { seen } else { NEVER }, Relaxed);
}

fn make_page() {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    let page = unsafe { libc::mmap(null_mut(), size_of::<AtomicU32>(), protection, flags, -1, 0) };
    if page != libc::MAP_FAILED {
        // If two threads fork at the same time, each maps a page, and one of the pages stays unused.
        // Pair `uses page made`.
        let _ = USES.compare_exchange(null_mut(), page.cast(), AcqRel, Relaxed);
    }
}

/// Counts the first use of the task after a fork; see [`claim`].
pub fn used() {
    if let Some(uses) = uses() {
        // Pair `task used`.
        uses.fetch_add(1, AcqRel);
    }
}

/// Renounces the parent's task for good: this process, which has not used the library yet, will not take the task over.
pub fn renounce() {
    SEEN.store(NEVER, Relaxed);
}

/// Separates this process from its parent's task: from now on its children can take over only the task of this process.
pub fn begin_anew() {
    USES.store(null_mut(), Relaxed);
    SEEN.store(NEVER, Relaxed);
}

/// Returns whether this process, a child of a fork, takes over the task of its parent: the parent has ended, the task
/// has not been used since the fork, and no other child has taken it over. Waits for a parent that is about to end.
pub fn claim(parent: u32) -> bool {
    let (Some(uses), seen) = (uses(), SEEN.load(Relaxed)) else { return false };
    // Pair `task used`: the child that takes over sees the parent's last writes.
    seen != NEVER
        && uses.load(Acquire) == seen
        && ends(parent, || uses.load(Acquire) == seen)
        && uses.compare_exchange(seen, seen.wrapping_add(1), AcqRel, Relaxed).is_ok()
}

/// The state of a process, as seen by another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ParentState {
    Gone,
    Ending,
    Asleep,
    Running,
}

/// Returns the state of a process; [`ParentState::Gone`] if no process has this id.
fn check(process: u32) -> ParentState {
    // SAFETY: no signal is sent.
    let gone = unsafe { libc::kill(process as libc::pid_t, 0) } != 0;
    // If /proc belongs to another process id namespace, its entry for this number describes another process; the parent
    // then counts as running.
    let own = std::fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == &*std::process::id().to_string());
    match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        _ if gone => ParentState::Gone,
        Ok(line) if own => judge(&line),
        _ => ParentState::Running,
    }
}

/// Returns the state that a line of `/proc/PID/stat` shows. The name of the program, in parentheses, may contain any
/// characters.
fn judge(line: &str) -> ParentState {
    let words: Vec<&str> = line.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok()).unwrap_or(0);
    let (flags, threads) = (number(6), number(17));
    match words.first() {
        // The first thread may end before other threads: the process then shows as a zombie, but still runs.
        Some(&"Z" | &"X") if threads <= 1 => ParentState::Gone,
        _ if flags & FLAG_ENDING != 0 && threads <= 1 => ParentState::Ending,
        Some(&"R" | &"D") => ParentState::Running,
        _ => ParentState::Asleep,
    }
}

/// Returns whether the process has ended; waits for a process that may end soon, as long as `matters` returns `true`.
fn ends(process: u32, matters: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    let mut asleep = 0;
    loop {
        let seen = check(process);
        asleep = if seen == ParentState::Asleep { asleep + 1 } else { 0 };
        let limit = if seen == ParentState::Ending { ENDING_WAIT_MAX } else { RUNNING_WAIT_MAX };
        if seen == ParentState::Gone {
            return true;
        }
        if asleep == ASLEEP_CHECKS || begin.elapsed() >= limit || !matters() {
            return false;
        }
        std::thread::sleep(CHECK_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, state: char, flags: u32, threads: u32) -> String {
        format!("17 ({name}) {state} 1 17 17 0 -1 {flags} 90 0 0 0 0 0 0 0 20 0 {threads} 0 100 3000000 200\n")
    }

    #[test]
    fn a_process_is_gone_when_all_its_threads_are() {
        assert_eq!(judge(&line("a", 'Z', 0x40_0004, 1)), ParentState::Gone);
        assert_eq!(judge(&line("a", 'Z', 0x40_0004, 2)), ParentState::Asleep);
        assert_eq!(judge(&line("a", 'R', 0x40_0004, 1)), ParentState::Ending);
        assert_eq!(judge(&line("a", 'R', 0x40_0000, 1)), ParentState::Running);
        assert_eq!(judge(&line("a) Z 1 (", 'S', 0x40_0000, 1)), ParentState::Asleep);
        assert_ne!(check(std::process::id()), ParentState::Gone);
        assert_eq!(check(i32::MAX as u32), ParentState::Gone);
    }

    #[test]
    fn a_parent_that_sleeps_is_not_waited_for() {
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let begin = Instant::now();
        assert!(!ends(sleeper.id(), || true));
        assert!(begin.elapsed() < RUNNING_WAIT_MAX, "{:?}", begin.elapsed());
        sleeper.kill().unwrap();
        // Not reaped yet.
        assert!(ends(sleeper.id(), || true));
        sleeper.wait().unwrap();
        assert!(ends(sleeper.id(), || true));
    }
}
