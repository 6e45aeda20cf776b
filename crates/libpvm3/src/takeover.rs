//! The child of a fork that goes on as the task that its parent was (D11).
//!
//! While the parent lives its child is a task of its own. When the parent has ended without having left, and has
//! done nothing as a task since the fork, all that the child has a copy of is still true: then it takes the parent's
//! place. A number in memory that parent and children share grows when the parent uses the task after a fork, and
//! when a child takes the place, so that there is one heir and no more.
use crate::lock;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::time::{Duration, Instant};

/// How long a child waits for the end of a parent that may be about to end.
const RUNNING_WAIT_MAX: Duration = Duration::from_millis(250);
/// How long it waits for a parent that is ending.
const ENDING_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks at the parent.
const LOOK_PAUSE: Duration = Duration::from_millis(1);
/// So many looks in a row that find the parent asleep mean that it lives on.
const ASLEEP_LOOKS: u32 = 3;
/// No use of the task has this number.
const NEVER: u32 = u32::MAX;
/// In the flags of a process: it is ending.
const FLAG_ENDING: u32 = 0x4;

/// The number of the last use of the task, in memory shared with the children; made at the first fork.
static USES: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// What that number was when this process, or the one whose child it is, forked last.
static SEEN: AtomicU32 = AtomicU32::new(NEVER);

fn uses() -> Option<&'static AtomicU32> {
    // SAFETY: null, or a page that is never unmapped.
    // Pair `uses page made`.
    unsafe { USES.load(Acquire).as_ref() }
}

/// Has the C library tell of forks.
pub fn watch_forks() {
    // SAFETY: the handler takes no lock and allocates nothing.
    unsafe { libc::pthread_atfork(Some(before_fork), None, None) };
}

extern "C" fn before_fork() {
    // A child that has not used the library itself is no task: its own children are its parent's.
    if lock::is_fresh() {
        return;
    }
    if uses().is_none() {
        make_page();
    }
    // Pair `task used`.
    let seen = uses().map_or(NEVER, |uses| uses.load(Acquire));
    SEEN.store(if lock::mark_fork() { seen } else { NEVER }, Relaxed);
}

fn make_page() {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping touches nothing that exists.
    let page = unsafe { libc::mmap(null_mut(), size_of::<AtomicU32>(), protection, flags, -1, 0) };
    if page != libc::MAP_FAILED {
        // Where two threads fork at the same time, one page is left over. Pair `uses page made`.
        let _ = USES.compare_exchange(null_mut(), page.cast(), AcqRel, Relaxed);
    }
}

/// The task is used, for the first time since a fork: see [`claim`].
pub fn used() {
    if let Some(uses) = uses() {
        // Pair `task used`.
        uses.fetch_add(1, AcqRel);
    }
}

/// The child of a fork has nothing to do with what its parent is.
pub fn renounce() {
    if lock::is_fresh() {
        SEEN.store(NEVER, Relaxed);
    }
}

/// This process is a task of its own: its children inherit from it alone.
pub fn begin_anew() {
    USES.store(null_mut(), Relaxed);
    SEEN.store(NEVER, Relaxed);
}

/// Whether this process, the child of a fork, takes the place of that parent: it has ended, nobody has used the task
/// since the fork, and no other child was faster. Waits for a parent that is about to end.
pub fn claim(parent: u32) -> bool {
    let (Some(uses), seen) = (uses(), SEEN.load(Relaxed)) else { return false };
    // Pair `task used`: who takes the place sees what the parent did last.
    seen != NEVER
        && uses.load(Acquire) == seen
        && ends(parent, || uses.load(Acquire) == seen)
        && uses.compare_exchange(seen, seen.wrapping_add(1), AcqRel, Relaxed).is_ok()
}

/// How a process looks from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    Gone,
    Ending,
    Asleep,
    Running,
}

/// How the process looks. What has no number is there no more.
fn look(process: u32) -> Look {
    // SAFETY: no signal is sent.
    let gone = unsafe { libc::kill(process as libc::pid_t, 0) } != 0;
    // Where the numbers of /proc are those of another namespace, it has nothing to say.
    let own = std::fs::read_link("/proc/self").is_ok_and(|own| own.as_os_str() == &*std::process::id().to_string());
    match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        _ if gone => Look::Gone,
        Ok(line) if own => judge(&line),
        _ => Look::Running,
    }
}

/// What a line of `/proc/PID/stat` says. The name, in brackets, may hold anything.
fn judge(line: &str) -> Look {
    let words: Vec<&str> = line.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok()).unwrap_or(0);
    let (flags, threads) = (number(6), number(17));
    match words.first() {
        // The first thread may have ended before others.
        Some(&"Z" | &"X") if threads <= 1 => Look::Gone,
        _ if flags & FLAG_ENDING != 0 && threads <= 1 => Look::Ending,
        Some(&"R" | &"D") => Look::Running,
        _ => Look::Asleep,
    }
}

/// Whether the process has ended, or does so soon; `matters` says whether that is still of interest.
fn ends(process: u32, matters: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    let mut asleep = 0;
    loop {
        let seen = look(process);
        asleep = if seen == Look::Asleep { asleep + 1 } else { 0 };
        let limit = if seen == Look::Ending { ENDING_WAIT_MAX } else { RUNNING_WAIT_MAX };
        if seen == Look::Gone {
            return true;
        }
        if asleep == ASLEEP_LOOKS || begin.elapsed() >= limit || !matters() {
            return false;
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, state: char, flags: u32, threads: u32) -> String {
        format!("17 ({name}) {state} 1 17 17 0 -1 {flags} 90 0 0 0 0 0 0 0 20 0 {threads} 0 100 3000000 200\n")
    }

    #[test]
    fn a_process_has_gone_when_all_its_threads_have() {
        assert_eq!(judge(&line("a", 'Z', 0x40_0004, 1)), Look::Gone);
        assert_eq!(judge(&line("a", 'Z', 0x40_0004, 2)), Look::Asleep);
        assert_eq!(judge(&line("a", 'R', 0x40_0004, 1)), Look::Ending);
        assert_eq!(judge(&line("a", 'R', 0x40_0000, 1)), Look::Running);
        assert_eq!(judge(&line("a) Z 1 (", 'S', 0x40_0000, 1)), Look::Asleep);
        assert_ne!(look(std::process::id()), Look::Gone);
        assert_eq!(look(i32::MAX as u32), Look::Gone);
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
