//! The time of the route.
use std::time::{Duration, Instant};

/// The clock of flows and pacer. It begins at zero.
pub(super) struct Clock {
    made: Instant,
    /// The time that a test has set.
    #[cfg(test)]
    pub set: Option<Duration>,
}

impl Clock {
    pub fn new() -> Clock {
        Clock {
            made: Instant::now(),
            #[cfg(test)]
            set: None,
        }
    }

    /// Returns the time.
    pub fn now(&self) -> Duration {
        #[cfg(test)]
        if let Some(set) = self.set {
            return set;
        }
        self.made.elapsed()
    }
}
