//! The choice between sending a multicast to each host and sending it along a tree, by what earlier ones have cost.
//!
//! A tree spares the sender's network adapter but makes more work for processors. Which of them is the bottleneck
//! depends on the network, the hosts and their load, so the daemon tries both ways and measures how long it takes until
//! all receivers have consumed the message.
use std::collections::HashMap;
use std::time::Duration;

/// The shortest body of which both ways are tried, in bytes. The credit for shorter ones returns late, so they cannot
/// be measured.
pub const MEASURED_BYTES_MIN: usize = 64 << 10;
/// The shortest body that takes the way that is better for bodies of [`MEASURED_BYTES_MIN`], in bytes.
const ALIKE_BYTES_MIN: usize = 16 << 10;
/// Each way is measured this number of times before one is preferred.
const FIRST_TRIES: usize = 3;
/// After this number of multicasts by the better way, the other one is measured again. If it is slower by a factor f,
/// this is done f times more rarely.
const RETRY_AFTER: u32 = 48;
/// A measurement that takes longer is given up: a receiver does something else.
const MEASUREMENT_MAX: Duration = Duration::from_secs(10);
/// The number of measurements of a way that count. The shortest of them is compared, because receivers may be busy with
/// something else.
const REMEMBERED: usize = 4;

/// A way of a multicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the sender's host to each host.
    Iterative,
    /// Along a binomial tree.
    Tree,
}

/// How many bytes and hosts, as powers of two.
type Class = (u32, u32);

/// The last measurements of a way.
#[derive(Default, Clone, Copy)]
struct Times {
    last: [Duration; REMEMBERED],
    count: usize,
}

impl Times {
    fn add(&mut self, time: Duration) {
        self.last[self.count % REMEMBERED] = time;
        self.count += 1;
    }

    /// Returns the shortest time in seconds, or `None` without a measurement.
    fn seconds(&self) -> Option<f64> {
        self.last[..self.count.min(REMEMBERED)].iter().min().map(Duration::as_secs_f64)
    }
}

#[derive(Default)]
struct Record {
    iterative: Times,
    tree: Times,
    /// The multicasts since both ways were measured.
    since_both: u32,
}

impl Record {
    fn better(&self) -> Way {
        match (self.iterative.seconds(), self.tree.seconds()) {
            (Some(iterative), Some(tree)) if tree < iterative => Way::Tree,
            _ => Way::Iterative,
        }
    }

    fn next(&mut self) -> Way {
        if self.iterative.count.min(self.tree.count) < FIRST_TRIES {
            return if self.iterative.count <= self.tree.count { Way::Iterative } else { Way::Tree };
        }
        let times = [&self.iterative, &self.tree].map(|times| times.seconds().unwrap_or_default());
        let factor = times[0].max(times[1]) / times[0].min(times[1]).max(1e-9);
        self.since_both += 1;
        if f64::from(self.since_both) < f64::from(RETRY_AFTER) * factor {
            return self.better();
        }
        self.since_both = 0;
        match self.better() {
            Way::Iterative => Way::Tree,
            Way::Tree => Way::Iterative,
        }
    }
}

/// A multicast that is being measured.
struct Measurement {
    class: Class,
    way: Way,
    since: Duration,
    /// How many receivers have not consumed it.
    left: usize,
    number: u32,
}

/// Chooses the way of each multicast.
#[derive(Default)]
pub struct Choice {
    records: HashMap<Class, Record>,
    measurement: Option<Measurement>,
    last_number: u32,
}

impl Choice {
    /// Returns the way for a body of `bytes` bytes to `hosts` hosts.
    pub fn way(&mut self, bytes: usize, hosts: usize) -> Way {
        if bytes >= MEASURED_BYTES_MIN {
            return self.records.entry(class(bytes, hosts)).or_default().next();
        }
        let like = self.records.get(&class(MEASURED_BYTES_MIN, hosts)).filter(|_| bytes >= ALIKE_BYTES_MIN);
        like.map_or(Way::Iterative, Record::better)
    }

    /// Begins to measure a multicast to `receivers` tasks. Returns the number of the measurement, or `None` if the
    /// multicast is not measured.
    pub fn begin(&mut self, now: Duration, way: Way, bytes: usize, hosts: usize, receivers: usize) -> Option<u32> {
        let is_busy = self.measurement.as_ref().is_some_and(|open| now < open.since + MEASUREMENT_MAX);
        if is_busy || bytes < MEASURED_BYTES_MIN {
            return None;
        }
        self.last_number = self.last_number.wrapping_add(1);
        let (class, number) = (class(bytes, hosts), self.last_number);
        self.measurement = Some(Measurement { class, way, since: now, left: receivers, number });
        Some(number)
    }

    /// Notes that a receiver has consumed a multicast that is being measured.
    pub fn consumed(&mut self, now: Duration, number: u32) {
        let Some(open) = self.measurement.as_mut().filter(|open| open.number == number) else { return };
        open.left -= 1;
        if open.left == 0 {
            let record = self.records.entry(open.class).or_default();
            let times = if open.way == Way::Tree { &mut record.tree } else { &mut record.iterative };
            times.add(now.saturating_sub(open.since));
            self.measurement = None;
        }
    }

    /// Gives a measurement up: a receiver has gone.
    pub fn give_up(&mut self, number: u32) {
        self.measurement.take_if(|open| open.number == number);
    }
}

fn class(bytes: usize, hosts: usize) -> Class {
    (bytes.ilog2(), hosts.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` multicasts in a network in which the ways take these numbers of microseconds. Returns how many
    /// took the tree.
    fn trees(choice: &mut Choice, count: u32, bytes: usize, iterative: u64, tree: u64) -> u32 {
        let (mut now, mut trees) = (Duration::ZERO, 0);
        for _ in 0..count {
            let way = choice.way(bytes, 16);
            let number = choice.begin(now, way, bytes, 16, 2);
            now += Duration::from_micros(if way == Way::Tree { tree } else { iterative });
            for _ in 0..2 {
                number.into_iter().for_each(|number| choice.consumed(now, number));
            }
            trees += u32::from(way == Way::Tree);
        }
        trees
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_one_is_tried_now_and_then() {
        let mut choice = Choice::default();
        let slow = trees(&mut choice, 1000, 1 << 20, 1000, 1500);
        assert!((10..20).contains(&slow), "{slow}");
        // The load of the network changes, so the tree becomes faster.
        trees(&mut choice, 500, 1 << 20, 6000, 1500);
        let fast = trees(&mut choice, 1000, 1 << 20, 6000, 1500);
        assert!((990..1000).contains(&fast), "{fast}");
        // The mean stays below 1.1 times the better one.
        let (bad, good) = (f64::from(1000 - fast), f64::from(fast));
        assert!((bad * 6000.0 + good * 1500.0) / 1000.0 < 1.1 * 1500.0);
    }

    #[test]
    fn shorter_bodies_take_the_way_of_the_shortest_measured_ones() {
        let mut choice = Choice::default();
        assert_eq!(choice.way(20_000, 16), Way::Iterative, "nothing is known");
        trees(&mut choice, 20, MEASURED_BYTES_MIN, 5000, 1000);
        assert_eq!(choice.way(20_000, 16), Way::Tree);
        assert_eq!(choice.way(ALIKE_BYTES_MIN - 1, 16), Way::Iterative);
        assert_eq!(choice.way(20_000, 4), Way::Iterative, "another number of hosts");
    }

    #[test]
    fn one_multicast_is_measured_at_a_time_and_a_lost_receiver_ends_the_measurement() {
        let mut choice = Choice::default();
        let now = Duration::from_secs(1);
        let number = choice.begin(now, Way::Iterative, 1 << 20, 8, 3).unwrap();
        assert_eq!(choice.begin(now, Way::Tree, 1 << 20, 8, 3), None);
        choice.give_up(number);
        let number = choice.begin(now, Way::Iterative, 1 << 20, 8, 1).unwrap();
        let later = now + MEASUREMENT_MAX;
        let newer = choice.begin(later, Way::Iterative, 1 << 20, 8, 1).unwrap();
        choice.consumed(later, number);
        assert_eq!(choice.way(1 << 20, 8), Way::Iterative, "the old measurement does not count");
        choice.consumed(later, newer);
        assert_eq!(choice.way(1 << 20, 8), Way::Tree);
    }
}
