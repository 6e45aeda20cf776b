//! How long the master waits for the signs that a release has reached all hosts, before it repeats the release.
//!
//! A sign is the next arrival of a member, so it comes as late as the program and the wire make it: on a shared wire of
//! 10 Mbit/s, the arrivals of 32 hosts take 20 ms. There a fixed time of this length repeats releases that nobody lacks,
//! and the repetitions delay the arrivals. So the master waits twice as long as the signs have taken lately. A release
//! that is lost then costs the time of two more barriers at most.
use std::time::Duration;

/// The least time, and the time until enough is measured, and after a release was lost. In a program that does little
/// between barriers, the next arrivals come earlier on most networks.
const LEAST: Duration = Duration::from_millis(20);
/// If the signs took so long that twice their time is longer than this, the program does much between barriers. Then a
/// repetition costs little, and a host that lacks the release should not wait.
const LONGEST: Duration = Duration::from_millis(200);
/// The number of barriers in a row, none of them with a lost release, in which the time is measured.
const SERIES: u8 = 8;

/// The time that the master waits, for the releases of one group.
pub(super) struct Patience {
    time: Duration,
    /// The barriers of the present series, and the longest time that signs took there.
    barriers: u8,
    longest: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { time: LEAST, barriers: 0, longest: Duration::ZERO }
    }
}

impl Patience {
    /// Returns the time that the master waits.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Notes that all signs of a release have come after this time, and that no host had missed the release.
    pub fn signs_took(&mut self, time: Duration) {
        self.longest = self.longest.max(time);
        self.barriers += 1;
        if self.barriers == SERIES {
            let wanted = 2 * self.longest;
            self.time = if wanted > LONGEST { LEAST } else { wanted.max(LEAST) };
            (self.barriers, self.longest) = (0, Duration::ZERO);
        }
    }

    /// Notes that a host has missed a release.
    pub fn release_lost(&mut self) {
        *self = Patience::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: impl IntoIterator<Item = u64>) -> Patience {
        let mut patience = Patience::default();
        times.into_iter().for_each(|time| patience.signs_took(Duration::from_millis(time)));
        patience
    }

    #[test]
    fn the_master_waits_twice_as_long_as_the_signs_have_taken() {
        assert_eq!(after([30; 7]).time(), LEAST, "too few were measured");
        assert_eq!(after([30, 10, 40, 30, 30, 30, 30, 30]).time(), Duration::from_millis(80));
        assert_eq!(after([1; 8]).time(), LEAST);
        assert_eq!(after([[40; 8], [15; 8]].concat()).time(), Duration::from_millis(30));
    }

    #[test]
    fn hosts_that_may_lack_a_release_do_not_wait_for_a_program_that_computes_for_long_or_on_a_network_that_loses() {
        assert_eq!(after([101; 8]).time(), LEAST);
        assert_eq!(after([100; 8]).time(), LONGEST);
        let mut patience = after([100; 8]);
        patience.release_lost();
        assert_eq!(patience.time(), LEAST);
    }
}
