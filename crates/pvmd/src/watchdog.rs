//! Looks in tests whether the daemon's loop waits for anything but its events. A debug build that waits too long logs for
//! which source, and aborts.
//!
//! A thread looks again and again whether the loop sleeps, and whether that is the same sleep as before. It measures no
//! time of the loop, so a busy machine does no harm, and neither does a signal that stops the process.
use crate::source::Source;
use rustix::event::epoll::EventData;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The pause between two looks, and how often the loop may be seen in one sleep: 50 ms.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
const LOOKS_MAX: usize = 5;
/// What the loop does while it waits for events, and while it does something without an event.
const WAITS: u64 = u64::MAX;
const NO_EVENT: u64 = u64::MAX - 1;

/// Watches the loop, in a debug build.
pub struct Watchdog {
    /// What the loop does: the data of a source, `WAITS` or `NO_EVENT`.
    doing: Arc<AtomicU64>,
}

impl Watchdog {
    /// Begins to watch the calling thread. `log`: where to complain.
    pub fn new(log: PathBuf) -> Watchdog {
        let doing = Arc::new(AtomicU64::new(WAITS));
        // A thread under an emulator sleeps when the emulator does.
        if cfg!(debug_assertions) && !cfg!(emulated) {
            let status = format!("/proc/self/task/{}/status", rustix::thread::gettid().as_raw_nonzero());
            let looks = Looks { doing: Arc::downgrade(&doing), status, last: None, count: 0 };
            // Without a thread nobody looks.
            let _ = std::thread::Builder::new().spawn(move || looks.go_on(&log));
        }
        Watchdog { doing }
    }

    /// Notes that the loop waits for events.
    pub fn waits(&self) {
        self.doing.store(WAITS, Ordering::Relaxed);
    }

    /// Notes that the loop does something without an event.
    pub fn works(&self) {
        self.doing.store(NO_EVENT, Ordering::Relaxed);
    }

    /// Notes that the loop handles an event.
    pub fn handles(&self, source: Source) {
        self.doing.store(source.data().u64(), Ordering::Relaxed);
    }
}

/// A sleep of the loop: what it does, and how often it has slept before.
type Sleep = (u64, u64);

/// The thread that looks.
struct Looks {
    doing: Weak<AtomicU64>,
    /// The file in which the system tells the state of the loop's thread.
    status: String,
    last: Option<Sleep>,
    /// How often the loop was seen in the last sleep.
    count: usize,
}

impl Looks {
    /// Looks until the daemon has ended, or waits too long.
    fn go_on(mut self, log: &PathBuf) {
        while self.doing.strong_count() > 0 {
            std::thread::sleep(LOOK_PAUSE);
            if let Some(doing) = self.look() {
                let complaint = match doing {
                    NO_EVENT => "[watchdog] the loop waits without an event\n".to_owned(),
                    data => format!("[watchdog] the loop waits for {:?}\n", Source::of(EventData::new_u64(data))),
                };
                let _ = std::io::stderr().write_all(complaint.as_bytes());
                let log = std::fs::File::options().append(true).open(log);
                let _ = log.and_then(|mut log| log.write_all(complaint.as_bytes()));
                std::process::abort();
            }
        }
    }

    /// Looks once. Returns what the loop does if it has been seen too often in the same sleep.
    fn look(&mut self) -> Option<u64> {
        let sleep = self.sleep();
        self.count = if sleep.is_some() && sleep == self.last { self.count + 1 } else { 0 };
        self.last = sleep;
        sleep.filter(|_| self.count >= LOOKS_MAX).map(|(doing, _)| doing)
    }

    /// Returns the sleep of the loop, if it sleeps and does not wait for events.
    fn sleep(&self) -> Option<Sleep> {
        let doing = self.doing.upgrade()?.load(Ordering::Relaxed);
        if doing == WAITS {
            return None;
        }
        let status = std::fs::read_to_string(&self.status).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let sleeps = field("State:")?.starts_with(['S', 'D']);
        // The loop may have gone on while its state was read.
        let is_same = self.doing.upgrade()?.load(Ordering::Relaxed) == doing;
        Some((doing, field("voluntary_ctxt_switches:")?.parse().ok()?)).filter(|_| sleeps && is_same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn one_long_sleep_is_noticed_and_work_is_not() {
        let (order, orders) = channel::<()>();
        let (tell, told) = channel();
        let source = Source::Process(pvm_core::tid::Tid(0x40001));
        let thread = std::thread::spawn(move || {
            let doing = Arc::new(AtomicU64::new(source.data().u64()));
            let status = format!("/proc/self/task/{}/status", rustix::thread::gettid().as_raw_nonzero());
            tell.send((Arc::downgrade(&doing), status, doing.clone())).unwrap();
            // Sleeps until it is told to go on.
            let _ = orders.recv();
        });
        let (weak, status, doing) = told.recv().unwrap();
        let mut looks = Looks { doing: weak, status, last: None, count: 0 };
        let mut seen = None;
        while seen.is_none() {
            std::thread::sleep(Duration::from_millis(1));
            seen = looks.look();
        }
        assert_eq!(seen.map(|data| Source::of(EventData::new_u64(data))), Some(source));
        assert!(looks.count == LOOKS_MAX);
        doing.store(WAITS, Ordering::Relaxed);
        assert_eq!((looks.look(), looks.count), (None, 0));
        drop(order);
        thread.join().unwrap();
        doing.store(NO_EVENT, Ordering::Relaxed);
        assert_eq!((looks.look(), looks.sleep()), (None, None), "the thread has ended");
    }
}
