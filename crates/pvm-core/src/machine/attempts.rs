//! The pauses between attempts to make a connection again.
use crate::time::Time;
use std::time::Duration;

/// The pause before the second of several attempts in a row. Each later pause is twice as long as the one before it.
const PAUSE_LEAST: Duration = Duration::from_millis(100);
/// The longest pause is the host timeout divided by this.
const LONGEST_PAUSES_PER_TIMEOUT: u32 = 4;

/// The attempts to make one connection again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempts {
    /// The number of attempts in a row.
    count: u32,
    /// When the last attempt began.
    last: Time,
}

impl Attempts {
    /// Returns the attempts for a connection that has just been made.
    pub fn new(now: Time) -> Attempts {
        Attempts { count: 0, last: now }
    }

    /// Returns when the next attempt is to begin: at once if the last one was long ago, else after a pause. The pauses grow,
    /// so that neither a broken network nor a malicious host keeps this host busy.
    pub fn next(&mut self, now: Time, timeout: Duration) -> Time {
        if self.is_first(now, timeout) {
            self.count = 0;
        }
        let longest = timeout / LONGEST_PAUSES_PER_TIMEOUT;
        let pause = match self.count {
            0 => Duration::ZERO,
            count => (PAUSE_LEAST * (1 << (count - 1).min(10))).min(longest),
        };
        now.max(self.last + pause)
    }

    /// Returns whether the next attempt is not one of several in a row.
    pub fn is_first(&self, now: Time, timeout: Duration) -> bool {
        self.count == 0 || now >= self.last + timeout
    }

    /// Begins an attempt.
    pub fn begin(&mut self, now: Time) {
        self.last = now;
        self.count = self.count.saturating_add(1);
    }
}
