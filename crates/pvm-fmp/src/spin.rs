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
/// A yield that takes longer than this has let another task run.
const OTHERS_RAN: Duration = Duration::from_micros(3);
/// After this number of yields that have let other tasks run, the waiting task sleeps.
const YIELDS_TO_OTHERS_MAX: u32 = 16;

/// What to do next while nothing has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Watch ([`crate::Endpoint::watch`]), then poll again.
    Again,
    /// Sleep on the doorbell: `prepare_park`, `poll`, `poll(2)`, `unpark`.
    Sleep,
}

/// The number of yields of a patient wait before the clock is read: mostly the wait ends earlier.
const FREE_YIELDS: u32 = 4;

/// One wait.
pub struct Spinner {
    crowded: bool,
    /// The number of further yields that are made without reading the clock.
    free_yields: u32,
    spins: u32,
    yields: u32,
    others_ran: u32,
    yielding_since: Option<Instant>,
}

impl Spinner {
    /// Begins a wait.
    pub fn new(crowded: bool) -> Spinner {
        Spinner { crowded, free_yields: 0, spins: 0, yields: 0, others_ran: 0, yielding_since: None }
    }

    /// Begins a wait in which tasks wait for one another, as in a barrier. Such a wait yields where other waits sleep,
    /// because another task would first have to wake a sleeping one before both could go on.
    pub fn patient(crowded: bool) -> Spinner {
        let spins = if crowded { SPINS } else { 0 };
        Spinner { spins, free_yields: FREE_YIELDS, ..Spinner::new(false) }
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
            self.others_ran >= YIELDS_TO_OTHERS_MAX || before - since > YIELD_TIME
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
            [false, true].into_iter().flat_map(|crowded| [Spinner::new(crowded), Spinner::patient(crowded)])
        {
            let start = Instant::now();
            while spinner.pause() == Wait::Again {
                assert!(start.elapsed() < Duration::from_secs(10));
            }
        }
    }
}
