//! The quality of the master's link to a host: for each recent beat interval, whether it was bad. An interval is bad if
//! nothing arrived in time or a packet was retransmitted. Small losses of packets appear here long before a link
//! breaks.
use crate::time::Time;
use std::time::Duration;

/// The number of beat intervals that are remembered.
pub(super) const HISTORY_BEATS: u32 = u32::BITS;

/// The quality of one link.
#[derive(Default)]
pub(super) struct LinkQuality {
    /// One bit for each interval, set if the interval was bad; the lowest bit is the current interval.
    bad: u32,
    /// When the current interval began.
    since: Time,
    /// The number of retransmissions on this connection so far.
    retransmissions: u32,
}

impl LinkQuality {
    /// Returns a new record, without bad intervals.
    pub fn begin(now: Time) -> LinkQuality {
        LinkQuality { since: now, ..LinkQuality::default() }
    }

    /// Begins the next interval if the current one is over; returns whether it was. Even an idle host sends a beat in
    /// each interval.
    pub fn pass(&mut self, now: Time, last_received: Time, interval: Duration) -> bool {
        if now < self.since + interval {
            return false;
        }
        let late = now > last_received + interval + interval / 2;
        (self.bad, self.since) = (self.bad << 1 | u32::from(late), now);
        true
    }

    /// Records the number of retransmissions since the connection began.
    pub fn retransmissions(&mut self, total: u32) {
        self.bad |= u32::from(total > self.retransmissions);
        self.retransmissions = total;
    }

    /// Notes that a new connection begins, without retransmissions.
    pub fn connection_begins(&mut self) {
        self.retransmissions = 0;
    }

    /// Returns the number of bad intervals.
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
            quality.retransmissions(total);
            quality.bad()
        };
        assert_eq!([beat(true, 0), beat(true, 3), beat(true, 3), beat(false, 3), beat(false, 4)], [0, 1, 1, 2, 3]);
        // Old bad intervals are forgotten.
        assert_eq!((0..HISTORY_BEATS).map(|_| beat(true, 4)).last(), Some(0));
    }
}
