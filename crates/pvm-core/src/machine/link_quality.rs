//! What the master sees of its own link to a host: for each of the last beats, whether it was a bad one, in
//! which nothing came in time or something had to be sent again. Small losses show here long before a link breaks.
use super::settings::Time;
use std::time::Duration;

/// So many beats are remembered.
pub(super) const HISTORY_BEATS: u32 = u32::BITS;

/// The quality of one link.
#[derive(Default)]
pub(super) struct LinkQuality {
    /// The beat that goes on is the lowest bit.
    bad: u32,
    /// When it began.
    since: Time,
    /// How often something has been sent again on this connection.
    sent_again: u32,
}

impl LinkQuality {
    /// None yet.
    pub fn begin(now: Time) -> LinkQuality {
        LinkQuality { since: now, ..LinkQuality::default() }
    }

    /// Whether a beat is over. A host that has nothing to say sends one in each interval.
    pub fn pass(&mut self, now: Time, heard: Time, interval: Duration) -> bool {
        if now < self.since + interval {
            return false;
        }
        let late = now > heard + interval + interval / 2;
        (self.bad, self.since) = (self.bad << 1 | u32::from(late), now);
        true
    }

    /// So often has something been sent again on the connection since it stands.
    pub fn sent_again(&mut self, total: u32) {
        self.bad |= u32::from(total > self.sent_again);
        self.sent_again = total;
    }

    /// How many of the beats were bad.
    pub fn bad(&self) -> u32 {
        self.bad.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_are_bad_when_nothing_comes_or_something_is_sent_again() {
        let (interval, mut now) = (Duration::from_secs(2), Duration::from_secs(9));
        let mut quality = LinkQuality::begin(now);
        let mut beat = |heard: bool, total: u32| {
            let before = now;
            now += interval;
            assert!(quality.pass(now, if heard { now } else { before - interval }, interval));
            assert!(!quality.pass(now + interval / 2, now, interval));
            quality.sent_again(total);
            quality.bad()
        };
        assert_eq!([beat(true, 0), beat(true, 3), beat(true, 3), beat(false, 3), beat(false, 4)], [0, 1, 1, 2, 3]);
        // All of it is forgotten by and by.
        assert_eq!((0..HISTORY_BEATS).map(|_| beat(true, 4)).last(), Some(0));
    }
}
