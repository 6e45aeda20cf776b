//! Whether this host is busy: whether its daemon waits long for a processor.
//!
//! The kernel counts how long a process has run, and how long it was ready to run and waited. A daemon runs for a few
//! microseconds at a time; where others compute, it waits longer than it runs before each of them. One second says
//! little, and a host that changes all the time must not move anything back and forth. So a host becomes busy after
//! some seconds, and is busy until it has been free for much longer.
use crate::time::Time;
use std::time::Duration;

/// The shortest time between two readings that are compared.
pub const LOAD_READ_EVERY: Duration = Duration::from_secs(1);
/// A time between two readings speaks for a busy host if the daemon waited longer than it ran, and at least this part
/// of the time; for a free host if it waited less than a quarter of what it ran, or less than a quarter of this part.
const WAITED_PART_MIN: u32 = 50;
/// The numbers of such times in a row after which the host is busy, or free.
const BUSY_AFTER: u32 = 3;
const FREE_AFTER: u32 = 10;

/// The readings of a daemon.
#[derive(Default)]
pub(super) struct Load {
    last: Option<(Time, Duration, Duration)>,
    is_busy: bool,
    /// How many readings in a row speak against `is_busy`.
    against: u32,
}

impl Load {
    /// Takes a reading: how long the daemon has run and waited since its start. Returns the new state if it has changed.
    pub fn read(&mut self, now: Time, ran: Duration, waited: Duration) -> Option<bool> {
        let Some((before, ran_before, waited_before)) = self.last else {
            self.last = Some((now, ran, waited));
            return None;
        };
        let time = now.saturating_sub(before);
        if time < LOAD_READ_EVERY {
            return None;
        }
        self.last = Some((now, ran, waited));
        let (ran, waited) = (ran.saturating_sub(ran_before), waited.saturating_sub(waited_before));
        let is_against = match self.is_busy {
            false => waited > ran && waited * WAITED_PART_MIN > time,
            true => waited * 4 < ran || waited * WAITED_PART_MIN * 4 < time,
        };
        self.against = if is_against { self.against + 1 } else { 0 };
        if self.against < if self.is_busy { FREE_AFTER } else { BUSY_AFTER } {
            return None;
        }
        (self.is_busy, self.against) = (!self.is_busy, 0);
        Some(self.is_busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads once a second; the daemon runs and waits for the given milliseconds in each second. Returns the changes.
    fn read(load: &mut Load, clock: &mut [u64; 3], seconds: usize, ran: u64, waited: u64) -> Vec<bool> {
        let mut changes = Vec::new();
        for _ in 0..seconds {
            *clock = [clock[0] + 1000, clock[1] + ran, clock[2] + waited];
            let [now, ran, waited] = clock.map(Duration::from_millis);
            changes.extend(load.read(now, ran, waited));
        }
        changes
    }

    #[test]
    fn a_host_is_busy_after_seconds_and_free_after_more() {
        let (mut load, mut clock) = (Load::default(), [0; 3]);
        assert_eq!(read(&mut load, &mut clock, 20, 30, 5), []);
        assert_eq!(read(&mut load, &mut clock, BUSY_AFTER as usize, 30, 100), [true]);
        assert_eq!(read(&mut load, &mut clock, FREE_AFTER as usize - 1, 30, 5), []);
        assert_eq!(read(&mut load, &mut clock, 1, 30, 100), []);
        assert_eq!(read(&mut load, &mut clock, FREE_AFTER as usize, 30, 5), [false]);
    }

    #[test]
    fn a_daemon_that_hardly_runs_says_nothing_about_its_host() {
        let (mut load, mut clock) = (Load::default(), [0; 3]);
        assert_eq!(read(&mut load, &mut clock, 50, 0, 15), [], "it waited long for what it did, but it did little");
    }

    #[test]
    fn a_load_that_changes_every_second_changes_nothing() {
        let (mut load, mut clock) = (Load::default(), [0; 3]);
        for _ in 0..50 {
            assert_eq!(read(&mut load, &mut clock, 2, 30, 100), []);
            assert_eq!(read(&mut load, &mut clock, 1, 30, 5), []);
        }
    }
}
