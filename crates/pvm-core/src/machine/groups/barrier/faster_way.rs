//! Whether a broadcast releases the barriers of a group faster than frames to each host do, as the master measures it.
//!
//! A datagram releases all hosts at once. On a switch that is faster. On a shared segment, members that arrive again at
//! once then collide, and frames to one host after another may be faster in a program that does little between
//! barriers. The master measures the time from each release to the next one: in turn after a broadcast and after frames
//! to each host, so that both see the same load. What the program itself does between barriers adds the same to both.
use crate::time::Time;
use std::time::Duration;

/// The number of times that are measured after each way of releases.
const TRIALS: usize = 8;
/// The number of barriers after which both ways are measured again, at first and at most. It doubles with each
/// measurement: the first ones may see a program, or hosts, that have just started.
const KEPT_FIRST: u32 = 64;
const KEPT_MAX: u32 = 1024;
/// Frames to each host are used if their median is below this percentage of the median of broadcasts. Smaller
/// differences are noise.
const CLEARLY_FASTER_PERCENT: u32 = 95;

/// The measurement for one group. It begins anew when the members change.
#[derive(Default)]
pub(super) struct FasterWay {
    /// The times after broadcasts, and those after frames to each host.
    after_broadcast: Vec<Duration>,
    after_each: Vec<Duration>,
    /// When the last barrier was released, and whether by broadcast.
    last: Option<(Time, bool)>,
    /// The number of barriers since the end of the measurement.
    kept_for: u32,
    /// How often both ways were measured before.
    measurements: u32,
}

impl FasterWay {
    /// Returns whether the barrier that is released now is to be released by broadcast.
    pub fn is_broadcast(&mut self, now: Time) -> bool {
        if let Some((before, was_broadcast)) = self.last {
            let times = if was_broadcast { &mut self.after_broadcast } else { &mut self.after_each };
            if times.len() < TRIALS {
                times.push(now.saturating_sub(before));
            }
        }
        let is_measured = self.after_broadcast.len() == TRIALS && self.after_each.len() == TRIALS;
        let is_broadcast = if !is_measured {
            self.after_broadcast.len() <= self.after_each.len()
        } else {
            self.kept_for += 1;
            let each = median(&mut self.after_each) * 100;
            let is_broadcast = each >= median(&mut self.after_broadcast) * CLEARLY_FASTER_PERCENT;
            if self.kept_for == (KEPT_FIRST << self.measurements).min(KEPT_MAX) {
                *self = FasterWay { measurements: (self.measurements + 1).min(8), ..FasterWay::default() };
            }
            is_broadcast
        };
        self.last = Some((now, is_broadcast));
        is_broadcast
    }

    /// Notes a barrier that was released otherwise: the time since the release before says nothing.
    pub fn interrupt(&mut self) {
        self.last = None;
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes barriers; returns how many were released by broadcast.
    fn pass(way: &mut FasterWay, now: &mut Time, barriers: u32, after_broadcast: u64, after_each: u64) -> u32 {
        let mut broadcasts = 0;
        for _ in 0..barriers {
            let is_broadcast = way.is_broadcast(*now);
            broadcasts += u32::from(is_broadcast);
            *now += Duration::from_micros(if is_broadcast { after_broadcast } else { after_each });
        }
        broadcasts
    }

    #[test]
    fn the_faster_way_is_taken_after_both_were_measured_in_turn() {
        let (measured, kept) = (2 * TRIALS as u32, KEPT_FIRST - 1);
        for (after_broadcast, after_each, expected) in [(100, 200, kept), (200, 100, 0), (100, 98, kept)] {
            let (mut way, mut now) = (FasterWay::default(), Time::ZERO);
            assert_eq!(pass(&mut way, &mut now, 2, after_broadcast, after_each), 1);
            assert_eq!(pass(&mut way, &mut now, measured - 2, after_broadcast, after_each), TRIALS as u32 - 1);
            assert_eq!(pass(&mut way, &mut now, kept, after_broadcast, after_each), expected);
        }
    }

    #[test]
    fn a_way_that_becomes_slower_is_left() {
        let (mut way, mut now) = (FasterWay::default(), Time::ZERO);
        pass(&mut way, &mut now, 2 * TRIALS as u32, 200, 100);
        assert_eq!(pass(&mut way, &mut now, KEPT_FIRST - 1, 50, 100), 0, "not measured again yet");
        pass(&mut way, &mut now, 1 + 2 * TRIALS as u32, 50, 100);
        assert_eq!(pass(&mut way, &mut now, KEPT_FIRST, 50, 100), KEPT_FIRST);
    }

    #[test]
    fn both_ways_are_measured_more_and_more_rarely() {
        let (mut way, mut now) = (FasterWay::default(), Time::ZERO);
        pass(&mut way, &mut now, 10 * KEPT_MAX, 100, 200);
        let slow = KEPT_MAX - pass(&mut way, &mut now, KEPT_MAX, 100, 200);
        assert!((1..=TRIALS as u32).contains(&slow), "{slow}");
    }

    #[test]
    fn barriers_of_other_kinds_are_not_measured() {
        let mut way = FasterWay::default();
        for second in 0..100 {
            assert!(way.is_broadcast(Duration::from_secs(second)), "nothing could be measured");
            way.interrupt();
        }
    }
}
