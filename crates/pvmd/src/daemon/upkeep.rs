//! Work that is due at regular intervals, whether or not there are events.
use std::time::{Duration, Instant};

/// How often the daemon checks that its socket and its rendezvous file exist.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the rendezvous file gets a new modification time, so that programs that remove old files do not remove it.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3600);
/// Free memory is returned to the system at the second quiet check in a row, and again after each further
/// `QUIET_CHECKS` quiet checks, since requests use memory even while no message is carried.
const QUIET_CHECKS: u32 = 60;

/// When the regular work is due next.
pub struct Upkeep {
    next_check: Instant,
    next_refresh: Instant,
    /// The number of quiet checks in a row. A check is quiet if the daemon has carried no message since the check
    /// before.
    quiet_checks: u32,
}

impl Upkeep {
    /// Begins the intervals.
    pub fn new(now: Instant) -> Upkeep {
        Upkeep { next_check: now + CHECK_INTERVAL, next_refresh: now + REFRESH_INTERVAL, quiet_checks: 0 }
    }

    /// Returns when the next check is due.
    pub fn next_check(&self) -> Instant {
        self.next_check
    }

    /// Returns whether a check is due, and plans the next one.
    pub fn begin_check(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next_check;
        if is_due {
            self.next_check = now + CHECK_INTERVAL;
        }
        is_due
    }

    /// Returns whether free memory should be returned to the system. `is_quiet`: no message was carried since the last
    /// check.
    pub fn should_release_memory(&mut self, is_quiet: bool) -> bool {
        self.quiet_checks = if is_quiet { self.quiet_checks.wrapping_add(1) } else { 0 };
        self.quiet_checks % QUIET_CHECKS == 2
    }

    /// Returns whether the rendezvous file is to be refreshed, and plans the next time.
    pub fn begin_refresh(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next_refresh;
        if is_due {
            self.next_refresh = now + REFRESH_INTERVAL;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_come_each_second_and_memory_is_released_after_two_quiet_ones() {
        let start = Instant::now();
        let mut upkeep = Upkeep::new(start);
        assert!(!upkeep.begin_check(start) && !upkeep.begin_refresh(start));
        let later = start + CHECK_INTERVAL;
        assert!(upkeep.begin_check(later) && !upkeep.begin_check(later));
        assert_eq!(upkeep.next_check(), later + CHECK_INTERVAL);
        assert!(upkeep.begin_refresh(start + REFRESH_INTERVAL) && !upkeep.begin_refresh(start + REFRESH_INTERVAL));
        let quiet = [true, true, false, true, true, true];
        let released = quiet.map(|is_quiet| upkeep.should_release_memory(is_quiet));
        assert_eq!(released, [false, true, false, false, true, false]);
        let more = (0..120).filter(|_| upkeep.should_release_memory(true)).count();
        assert_eq!(more, 2);
    }
}
