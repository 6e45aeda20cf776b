//! The choice among the ways of a multicast, by what earlier ones have cost.
//!
//! A tree spares the sender's network adapter but makes more work for processors; a broadcast spares the network but
//! needs a system call for each packet. Which of them is the bottleneck depends on the network, the hosts and their
//! load, so the daemon tries all ways and measures how long it takes until all receivers have consumed the message.
use super::advice::Advice;
use super::{MEASURED_BYTES_MIN, McastRoute};
use pvm_explorer::{CLOSE_RATIO, Explorer, Rules};
use std::collections::BTreeMap;
use std::iter::once;
use std::time::Duration;

/// The shortest body that takes the best way for bodies of [`MEASURED_BYTES_MIN`], in bytes. A shorter one takes it only
/// if the iterative way is slower by [`CLEARLY_SLOWER`]: the shorter the bodies, the less the ways differ.
const ALIKE_BYTES_MIN: usize = 16 << 10;
/// The factor between times that do not differ by chance.
const CLEARLY_SLOWER: f32 = CLOSE_RATIO;
/// How ways are tried. The first time of a way does not count, since it makes connections and touches new memory. Programs
/// send few multicasts, so a larger part of the time goes into trials than elsewhere.
const RULES: Rules = Rules { trials_min: 2, trials_max: 3, loss_divisor: 150.0, pause_min: 48 };
/// A measurement that takes longer is given up: a receiver does something else.
const MEASUREMENT_MAX: Duration = Duration::from_secs(60);
/// Tasks send multicasts on their direct links only if the longest of the class take the daemon at most this time. A task
/// has to wait for its links, but not for the daemon.
const QUICK: Duration = Duration::from_millis(100);
/// Links suit as long as sending to each host takes the daemon at most this factor longer than its best way. A body on a
/// link passes no daemon, which saves more time than that.
const LINKS_GAIN: f32 = 1.25;

/// How many bytes and hosts, as powers of two.
type Class = (u32, u32);

/// The ways among which the daemon chooses. The last one is not possible everywhere.
const WAYS: [McastRoute; 3] = [McastRoute::Iterative, McastRoute::Binomial, McastRoute::Broadcast];
/// The place of the way that suits best while nothing is known.
const ITERATIVE: usize = 0;
const BROADCAST: usize = 2;

/// What is known of a class. A cost is the time in us of its shortest multicast to its fewest hosts: a longer time is
/// scaled. The longest body to the most hosts takes four times as long.
type Record = Explorer<{ WAYS.len() }>;

/// Returns how much slower one way is than another one, as a factor.
fn factor(record: &Record, way: usize, other: usize) -> f32 {
    record.cost(way) / record.cost(other)
}

/// Returns the place of the way of a multicast that can be measured. Broadcasts come last, because the times of the other
/// ways limit how long one may take ([`Choice::time_limit`]).
fn next_measured(record: &Record, count: usize) -> usize {
    record.next(if record.is_settled(BROADCAST) { count } else { BROADCAST })
}

/// Returns what tasks should know about the class: whether links suit, and whether another way is clearly better. Returns
/// `None` while one of the first `count` ways was not measured often enough.
fn advice(record: &Record, count: usize) -> Option<(bool, bool)> {
    let factor = factor(record, ITERATIVE, record.best(count));
    let is_quick = record.cost(ITERATIVE) * 4.0 <= QUICK.as_micros() as f32;
    record.is_settled(count).then_some((factor <= LINKS_GAIN && is_quick, factor >= CLEARLY_SLOWER))
}

/// Returns a line with the time of each way.
fn summary((bytes, hosts): &Class, record: &Record) -> String {
    let time = |way| match record.cost(way) {
        cost if cost.is_finite() => format!("{cost:.0} us"),
        _ => "not measured".to_owned(),
    };
    let times: Vec<String> = (0..WAYS.len()).map(|way| format!("{} {}", WAYS[way].name(), time(way))).collect();
    let (bytes, hosts) = (1_u64 << bytes, 1_u64 << hosts);
    let (bytes_end, hosts_end) = (2 * bytes - 1, 2 * hosts - 1);
    format!("multicasts of {bytes} to {bytes_end} bytes to {hosts} to {hosts_end} hosts: {}", times.join(", "))
}

/// A multicast that is being measured.
struct Measurement {
    class: Class,
    /// How many times as long it takes as the shortest one of its class.
    scale: f32,
    /// The place of the way in [`WAYS`].
    way: usize,
    /// The number of ways that were possible.
    ways: usize,
    since: Duration,
    /// How many receivers have not consumed it.
    left: usize,
    number: u32,
    /// Whether it is a broadcast that was given up.
    was_given_up: bool,
}

/// Chooses the way of each multicast.
#[derive(Default)]
pub struct Choice {
    /// How many multicasts took each way.
    taken: BTreeMap<McastRoute, u64>,
    records: BTreeMap<Class, Record>,
    measurement: Option<Measurement>,
    last_number: u32,
    advice: Advice,
}

impl Choice {
    /// Chooses the way of a body of `bytes` bytes to `hosts` hosts: one of [`WAYS`]. If the multicast can be measured,
    /// `receivers` is the number of its receivers. Returns the way, and the number of the measurement if one begins. Only
    /// measured multicasts try a way that may be slower.
    pub fn choose(
        &mut self,
        now: Duration,
        bytes: usize,
        hosts: usize,
        receivers: Option<usize>,
        can_broadcast: bool,
    ) -> (McastRoute, Option<u32>) {
        let count = WAYS.len() - usize::from(!can_broadcast);
        let is_busy = self.measurement.as_ref().is_some_and(|open| now < open.since + MEASUREMENT_MAX);
        let receivers = receivers.filter(|_| bytes >= MEASURED_BYTES_MIN && !is_busy);
        let Some(left) = receivers else {
            let record = self.records.get(&class(bytes.max(MEASURED_BYTES_MIN), hosts));
            let is_better = |record: &&Record| {
                bytes >= ALIKE_BYTES_MIN || factor(record, ITERATIVE, record.best(count)) >= CLEARLY_SLOWER
            };
            return (WAYS[record.filter(is_better).map_or(ITERATIVE, |record| record.best(count))], None);
        };
        let (class, scale) = (class(bytes, hosts), scale(bytes, hosts));
        let way = next_measured(self.records.entry(class).or_insert(Record::new(&RULES)), count);
        self.last_number = self.last_number.wrapping_add(1);
        let (number, since) = (self.last_number, now);
        self.measurement =
            Some(Measurement { class, scale, way, ways: count, since, left, number, was_given_up: false });
        (WAYS[way], Some(self.last_number))
    }

    /// Returns how long a measured broadcast may take: [`CLEARLY_SLOWER`] times the time of the best other way. So the
    /// trial of a broadcast on a network that is not made for it costs a limited time. Returns `None` if no other way was
    /// measured.
    pub fn time_limit(&self, bytes: usize, hosts: usize) -> Option<Duration> {
        let record = self.records.get(&class(bytes, hosts))?;
        let cost = record.cost(record.best(BROADCAST));
        // Rounded: the function of `f32` would call the C library.
        let micros = (cost * CLEARLY_SLOWER * scale(bytes, hosts) + 0.5) as u64;
        cost.is_finite().then(|| Duration::from_micros(micros))
    }

    /// Notes that the broadcast that is being measured was given up.
    pub fn broadcast_given_up(&mut self) {
        if let Some(open) = self.measurement.as_mut().filter(|open| open.way == BROADCAST) {
            open.was_given_up = true;
        }
    }

    /// Counts a multicast that takes a way.
    pub fn note_taken(&mut self, way: McastRoute) {
        *self.taken.entry(way).or_default() += 1;
    }

    /// Returns lines with the numbers of multicasts by each way, and with the measured times.
    pub fn summary(&self) -> impl Iterator<Item = String> + '_ {
        let taken: Vec<String> = self.taken.iter().map(|(way, count)| format!("{count} {}", way.name())).collect();
        let first = format!("multicasts: {}", if taken.is_empty() { "none".to_owned() } else { taken.join(", ") });
        once(first).chain(self.records.iter().map(|(class, record)| summary(class, record)))
    }

    /// Counts from 0 again. The measurements remain.
    pub fn reset_counts(&mut self) {
        self.taken.clear();
    }

    /// Notes that a receiver has consumed a multicast that is being measured.
    pub fn consumed(&mut self, now: Duration, number: u32) {
        let Some(open) = self.measurement.as_mut().filter(|open| open.number == number) else { return };
        open.left -= 1;
        if open.left == 0 {
            let record = self.records.entry(open.class).or_insert(Record::new(&RULES));
            let before = record.cost(open.way);
            let cost = (now.saturating_sub(open.since).as_secs_f32() * 1e6).max(1.0) / open.scale;
            record.observe(open.ways, open.way, cost);
            if open.was_given_up && record.best(WAYS.len()) != open.way {
                // How long it would have taken is not known: twice as long as was assumed, if it is given up again.
                record.assume(open.way, if before.is_finite() { cost.max(2.0 * before) } else { cost });
            }
            if let Some((links, clearly_other_way)) = advice(record, open.ways) {
                self.advice.set(open.class, links, clearly_other_way);
            }
            self.measurement = None;
        }
    }

    /// Returns what tasks should know.
    pub fn advice(&self) -> Advice {
        self.advice
    }

    /// Abandons a measurement, because a receiver has gone.
    pub fn give_up(&mut self, number: u32) {
        self.measurement.take_if(|open| open.number == number);
    }
}

fn class(bytes: usize, hosts: usize) -> Class {
    (bytes.ilog2(), hosts.ilog2())
}

/// Returns how many times as long a multicast takes as the shortest one of its class to the fewest hosts.
fn scale(bytes: usize, hosts: usize) -> f32 {
    let part = |of: usize| of as f32 / (1_u64 << of.ilog2()) as f32;
    part(bytes) * part(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `count` multicasts in a network in which the ways take these numbers of microseconds. Returns how many
    /// took the tree.
    fn trees(choice: &mut Choice, count: u32, bytes: usize, iterative: u64, tree: u64) -> u32 {
        let (mut now, mut trees) = (Duration::ZERO, 0);
        for _ in 0..count {
            let (way, number) = choice.choose(now, bytes, 16, Some(2), false);
            let is_tree = way == McastRoute::Binomial;
            now += Duration::from_micros(if is_tree { tree } else { iterative });
            for _ in 0..2 {
                number.into_iter().for_each(|number| choice.consumed(now, number));
            }
            trees += u32::from(is_tree);
        }
        trees
    }

    /// Returns the way of a multicast that cannot be measured.
    fn unmeasured(choice: &mut Choice, bytes: usize, hosts: usize) -> McastRoute {
        let (way, number) = choice.choose(Duration::ZERO, bytes, hosts, None, false);
        assert_eq!(number, None);
        way
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
    fn tasks_are_told_which_way_is_best() {
        // After this number of multicasts of two lengths: whether links are preferred for a long body and a short one.
        let told = |count, iterative, tree| {
            let mut choice = Choice::default();
            trees(&mut choice, count, 1 << 20, iterative, tree);
            trees(&mut choice, count, MEASURED_BYTES_MIN, iterative, tree);
            let word = choice.advice().0[Advice::place(16).unwrap()];
            [1 << 20, 10_000].map(|bytes| Advice::prefers_links(word, bytes, 16))
        };
        assert_eq!(told(5, 1000, 1500), [false, true], "not measured often enough");
        assert_eq!(told(20, 1000, 1500), [true, true]);
        assert_eq!(told(20, 1200, 1000), [true, true], "links are faster than the daemon");
        assert_eq!(told(20, 1700, 1000), [false, true]);
        assert_eq!(told(20, 6000, 1500), [false, false]);
        assert_eq!(told(20, 60_000, 90_000), [false, true], "a task does not wait that long");
    }

    #[test]
    fn broadcasts_are_tried_where_they_are_possible() {
        let mut choice = Choice::default();
        let mut now = Duration::ZERO;
        let mut ways = Vec::new();
        for _ in 0..2000 {
            let (way, number) = choice.choose(now, 1 << 20, 16, Some(1), true);
            let time = WAYS.iter().position(|other| *other == way).map(|place| [4000, 8000, 1000][place]);
            now += Duration::from_micros(time.unwrap());
            number.into_iter().for_each(|number| choice.consumed(now, number));
            ways.push(way);
        }
        let count = |way| ways.iter().filter(|other| **other == way).count();
        assert!(count(McastRoute::Broadcast) > 1950 && count(McastRoute::Iterative) > count(McastRoute::Binomial));
        assert_eq!(choice.choose(now, 1 << 20, 16, Some(1), false).0, McastRoute::Iterative, "impossible now");
    }

    #[test]
    fn a_broadcast_is_tried_when_the_times_of_the_other_ways_are_known() {
        let (mut choice, mut now) = (Choice::default(), Duration::ZERO);
        let mut ways = Vec::new();
        for time in [9000, 1500, 1000, 1100, 1000, 1100, 900] {
            let (way, number) = choice.choose(now, 1 << 20, 16, Some(1), true);
            if way == McastRoute::Broadcast {
                assert_eq!(choice.time_limit(1 << 20, 16), Some(Duration::from_micros(2000)));
            }
            now += Duration::from_micros(time);
            choice.consumed(now, number.unwrap());
            ways.push(way);
        }
        use McastRoute::{Binomial, Broadcast, Iterative};
        assert_eq!(ways, [Iterative, Binomial, Iterative, Binomial, Iterative, Binomial, Broadcast]);
    }

    #[test]
    fn a_broadcast_may_take_twice_as_long_as_the_best_other_way() {
        let mut choice = Choice::default();
        assert_eq!(choice.time_limit(1 << 20, 16), None, "nothing is known");
        trees(&mut choice, 20, 1 << 20, 3000, 1000);
        assert_eq!(choice.time_limit(1 << 20, 16), Some(Duration::from_millis(2)));
        assert_eq!(choice.time_limit(3 << 19, 24), Some(Duration::from_micros(4500)), "it is as much longer");
        assert_eq!(choice.time_limit(1 << 22, 16), None);
        // The quickest one may have been much shorter.
        let mut choice = Choice::default();
        let mut now = Duration::ZERO;
        for (bytes, time) in [(64 << 10, 1000), (120 << 10, 1100)] {
            let (_, number) = choice.choose(now, bytes, 16, Some(1), true);
            now += Duration::from_micros(time);
            choice.consumed(now, number.unwrap());
        }
        assert_eq!(choice.time_limit(120 << 10, 16), Some(Duration::from_micros(2200)));
    }

    #[test]
    fn a_way_that_is_clearly_slower_is_tried_twice() {
        let mut choice = Choice::default();
        assert_eq!(trees(&mut choice, 20, 1 << 20, 1000, 2500), 2);
        let mut choice = Choice::default();
        assert_eq!(trees(&mut choice, 20, 1 << 20, 2500, 1000), 18);
    }

    #[test]
    fn shorter_bodies_take_the_way_of_the_shortest_measured_ones() {
        let mut choice = Choice::default();
        assert_eq!(unmeasured(&mut choice, 20_000, 16), McastRoute::Iterative, "nothing is known");
        trees(&mut choice, 20, MEASURED_BYTES_MIN, 5000, 1000);
        assert_eq!(unmeasured(&mut choice, 20_000, 16), McastRoute::Binomial);
        assert_eq!(unmeasured(&mut choice, ALIKE_BYTES_MIN - 1, 16), McastRoute::Binomial, "much faster");
        assert_eq!(unmeasured(&mut choice, 20_000, 4), McastRoute::Iterative, "another number of hosts");
        let mut choice = Choice::default();
        trees(&mut choice, 20, MEASURED_BYTES_MIN, 1500, 1000);
        assert_eq!(unmeasured(&mut choice, ALIKE_BYTES_MIN, 16), McastRoute::Binomial);
        assert_eq!(unmeasured(&mut choice, ALIKE_BYTES_MIN - 1, 16), McastRoute::Iterative, "a little faster");
    }

    #[test]
    fn a_multicast_that_is_not_measured_takes_no_way_that_is_not_known_to_be_faster() {
        let mut choice = Choice::default();
        let (now, bytes) = (Duration::from_secs(1), 1 << 20);
        let (way, number) = choice.choose(now, bytes, 16, Some(1), false);
        choice.consumed(now, number.unwrap());
        assert_eq!(way, McastRoute::Iterative);
        // The tree comes next, but only in a multicast that shows how long it takes.
        assert_eq!(unmeasured(&mut choice, bytes, 16), McastRoute::Iterative);
        assert!(matches!(choice.choose(now, bytes, 16, Some(1), false), (McastRoute::Binomial, Some(_))));
        assert!(
            matches!(choice.choose(now, bytes, 16, Some(1), false), (McastRoute::Iterative, None)),
            "one at a time"
        );
    }

    #[test]
    fn a_lost_or_busy_receiver_ends_the_measurement() {
        let mut choice = Choice::default();
        let (now, bytes) = (Duration::from_secs(1), 1 << 20);
        let (_, number) = choice.choose(now, bytes, 8, Some(3), false);
        choice.give_up(number.unwrap());
        let (way, late) = choice.choose(now, bytes, 8, Some(1), false);
        assert_eq!(way, McastRoute::Iterative, "the measurement was abandoned");
        let later = now + MEASUREMENT_MAX;
        let (way, newer) = choice.choose(later, bytes, 8, Some(1), false);
        choice.consumed(later, late.unwrap());
        assert_eq!(way, McastRoute::Iterative, "it took too long");
        choice.consumed(later, newer.unwrap());
        assert_eq!(choice.choose(later, bytes, 8, Some(1), false).0, McastRoute::Binomial);
    }

    #[test]
    fn the_summary_shows_counts_and_times() {
        let mut choice = Choice::default();
        assert_eq!(choice.summary().collect::<Vec<_>>(), ["multicasts: none"]);
        trees(&mut choice, 6, 1 << 20, 1000, 1500);
        choice.note_taken(McastRoute::Hypercube);
        choice.note_taken(McastRoute::Iterative);
        choice.note_taken(McastRoute::Iterative);
        let lines: Vec<String> = choice.summary().collect();
        assert_eq!(
            lines,
            [
                "multicasts: 2 iterative, 1 hypercube",
                "multicasts of 1048576 to 2097151 bytes to 16 to 31 hosts: iterative 1000 us, binomial 1500 us, \
             broadcast not measured",
            ]
        );
        choice.reset_counts();
        assert_eq!(choice.summary().count(), 2, "what was measured is still used");
    }
}
