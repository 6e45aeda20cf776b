//! How to wait: spin while cores are free, yield while other tasks want them, then sleep.
use std::time::{Duration, Instant};

/// The number of watches without a system call, of some hundred nanoseconds each: an answer from another core arrives
/// within that time. More watches would delay the answer of a task that has to run on the same core.
const SPINS: u32 = 8;
/// How long a waiting task yields before it sleeps, if cores are free.
const YIELD_TIME: Duration = Duration::from_micros(200);
/// The number of yields of a waiting task before it sleeps, if tasks outnumber cores: another task on the same core may
/// answer during a yield, without a wake-up. More yields would take time from tasks that have work.
const CROWDED_YIELDS: u32 = 1;
/// How often [`YIELD_TIME`] may begin anew while a long message arrives: in all 2 ms, in which 4 MB arrive at 2 GB/s.
const EXTENSIONS_MAX: u32 = 10;
/// A yield that takes longer than this has let another task run.
const OTHERS_RAN: Duration = Duration::from_micros(3);
/// After this number of yields that have let other processes run, the waiting task sleeps.
const YIELDS_TO_OTHERS_MAX: u32 = 16;
/// One in this number of waits yields up to the maximum although earlier yields were in vain, to see whether yields are
/// still in vain. After each wait that finds that they are, the number doubles, up to `PROBE_EVERY_MAX`.
const PROBE_EVERY: u32 = 32;
const PROBE_EVERY_MAX: u32 = 512;

/// How long waits should spin and yield to other processes before they sleep, learned from earlier waits. If awaited
/// messages arrive during the spins and yields, the spins and yields save wake-ups. Otherwise they only take time from
/// the processes that have to run before a message can arrive.
#[derive(Debug)]
pub struct WaitHistory {
    /// The number of yields to other processes after which a wait sleeps. At 0 a wait does not spin either.
    limit: u32,
    /// The waits since the last one that yielded to see whether yields are in vain, and the number after which another
    /// one does.
    waits: u32,
    probe_every: u32,
}

impl Default for WaitHistory {
    fn default() -> WaitHistory {
        WaitHistory { limit: YIELDS_TO_OTHERS_MAX, waits: 0, probe_every: PROBE_EVERY }
    }
}

impl WaitHistory {
    /// Returns the limit for a wait that begins.
    fn next(&mut self) -> u32 {
        self.waits += 1;
        if self.waits < self.probe_every {
            return self.limit;
        }
        self.waits = 0;
        if self.limit == 0 {
            self.probe_every = (2 * self.probe_every).min(PROBE_EVERY_MAX);
        }
        YIELDS_TO_OTHERS_MAX
    }

    /// Learns from a wait that is over, or that is about to sleep (`slept`).
    #[inline]
    pub fn learn(&mut self, spinner: &Spinner, slept: bool) {
        // If no other process wanted the core, a wait that sleeps does not show whether yields help.
        if slept && spinner.others_ran > 0 {
            self.limit /= 2;
        } else if !slept && self.limit < YIELDS_TO_OTHERS_MAX {
            self.limit = (2 * self.limit.max(spinner.others_ran)).clamp(1, YIELDS_TO_OTHERS_MAX);
            self.probe_every = PROBE_EVERY;
        }
    }
}

/// What to do next while nothing has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Watch ([`crate::Endpoint::watch`]), then poll again.
    Again,
    /// Sleep on the doorbell: `prepare_park`, `poll`, `poll(2)`, `unpark`.
    Sleep,
}

/// The number of yields of a patient wait before the clock is first read: most waits end before that.
const FREE_YIELDS: u32 = 4;

/// One wait.
pub struct Spinner {
    crowded: bool,
    /// The number of further yields that are made without reading the clock.
    free_yields: u32,
    spins: u32,
    yields: u32,
    others_ran: u32,
    others_ran_max: u32,
    yielding_since: Option<Instant>,
    extensions: u32,
}

impl Spinner {
    /// Begins a wait.
    pub fn new(crowded: bool, history: &mut WaitHistory) -> Spinner {
        let others_ran_max = history.next();
        let spins = if others_ran_max == 0 { SPINS } else { 0 };
        Spinner { spins, others_ran_max, ..Spinner::with_all_yields(crowded) }
    }

    fn with_all_yields(crowded: bool) -> Spinner {
        Spinner {
            crowded,
            free_yields: 0,
            spins: 0,
            yields: 0,
            others_ran: 0,
            others_ran_max: YIELDS_TO_OTHERS_MAX,
            yielding_since: None,
            extensions: 0,
        }
    }

    /// Begins a wait that neither spins nor yields.
    pub fn none() -> Spinner {
        Spinner { spins: SPINS, others_ran_max: 0, ..Spinner::with_all_yields(false) }
    }

    /// Begins a wait in which tasks wait for one another, as in a barrier. Such a wait yields where other waits sleep,
    /// because another task would first have to wake a sleeping one before both could go on.
    pub fn patient(crowded: bool) -> Spinner {
        let spins = if crowded { SPINS } else { 0 };
        Spinner { spins, free_yields: FREE_YIELDS, ..Spinner::with_all_yields(false) }
    }

    /// Begins the time for which the wait yields anew, since a long message is arriving. Returns false if others want the core, or
    /// if that was done so often that the caller had better sleep: it holds a lock for which other threads may wait.
    pub fn extend(&mut self) -> bool {
        let extends = !self.crowded && self.others_ran < self.others_ran_max && self.extensions < EXTENSIONS_MAX;
        if extends {
            self.extensions += 1;
            self.yielding_since = None;
        }
        extends
    }

    /// Lets a little time pass, then returns what to do.
    #[inline]
    pub fn pause(&mut self) -> Wait {
        if !self.crowded && self.spins < SPINS {
            self.spins += 1;
            return Wait::Again;
        }
        self.pause_long()
    }

    #[cold]
    fn pause_long(&mut self) -> Wait {
        if self.free_yields > 0 {
            self.free_yields -= 1;
            std::thread::yield_now();
            return Wait::Again;
        }
        let before = Instant::now();
        let since = *self.yielding_since.get_or_insert(before);
        let enough = if self.crowded {
            self.yields >= CROWDED_YIELDS
        } else {
            self.others_ran >= self.others_ran_max || before - since > YIELD_TIME
        };
        if enough {
            return Wait::Sleep;
        }
        std::thread::yield_now();
        self.yields += 1;
        self.others_ran += u32::from(before.elapsed() > OTHERS_RAN);
        Wait::Again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_ends_in_sleep() {
        for mut spinner in
            [false, true].into_iter().flat_map(|crowded| [Spinner::with_all_yields(crowded), Spinner::patient(crowded)])
        {
            let start = Instant::now();
            while spinner.pause() == Wait::Again {
                assert!(start.elapsed() < Duration::from_secs(10));
            }
        }
    }

    #[test]
    fn yields_in_vain_become_fewer_and_are_tried_again() {
        let mut history = WaitHistory::default();
        let after = |others_ran| Spinner { others_ran, ..Spinner::with_all_yields(false) };
        for _ in 0..5 {
            history.learn(&after(16), true);
        }
        let limits: Vec<u32> = (0..PROBE_EVERY).map(|_| history.next()).collect();
        assert_eq!(limits.iter().filter(|limit| **limit == 0).count() as u32, PROBE_EVERY - 1);
        assert!(limits.contains(&YIELDS_TO_OTHERS_MAX));
        history.learn(&after(3), false);
        assert_eq!(history.limit, 6);
        history.learn(&after(0), true);
        assert_eq!(history.limit, 6);
    }

    #[test]
    fn a_wait_is_extended_unless_others_want_the_core() {
        let mut spinner = Spinner::with_all_yields(false);
        while spinner.pause() == Wait::Again {}
        // Others may have run during this test.
        let is_extended = spinner.extend();
        assert_eq!(is_extended, spinner.others_ran < YIELDS_TO_OTHERS_MAX);
        assert!(!is_extended || spinner.pause() == Wait::Again);
        spinner.others_ran = YIELDS_TO_OTHERS_MAX;
        assert!(!spinner.extend());
        assert!(!Spinner::with_all_yields(true).extend());
        let mut spinner = Spinner::with_all_yields(false);
        assert_eq!((0..100).filter(|_| spinner.extend()).count(), EXTENSIONS_MAX as usize);
    }

    #[test]
    fn a_wait_that_sleeps_at_once_does_not_spin() {
        let mut history = WaitHistory { limit: 0, ..WaitHistory::default() };
        assert_eq!(Spinner::new(false, &mut history).pause(), Wait::Sleep);
    }
}
