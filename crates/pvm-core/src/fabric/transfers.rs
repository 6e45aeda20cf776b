//! How bodies travel on a link: *eager*, that is in the frames themselves, or *read* by the receiver from the sender's
//! memory.
//!
//! An eager body crosses the network once, but is copied on both sides, frame by frame. A body that is read is
//! copied less, but its offer and the read cross the network before its bytes do. Which is quicker depends on the provider,
//! the network and the processors. So the receiver knows no speed: for each class of lengths it measures both, and each of
//! its frames tells the sender the quicker one. Now and then it wishes for the other one, to measure that again.

/// The longest body that may be eager, in bytes: beyond, the time of the offer is a small part of the whole.
///
/// * Filled by: each task with a link to this one
/// * Setting: none, since the quicker transfer is measured
/// * Reached: a longer body is read from its sender's memory; a longer eager one ends the link
/// * Test: `a_peer_that_breaks_the_rules_is_found_out`
pub const EAGER_BYTES_MAX: usize = 512 << 10;
/// The longest body of the first class of lengths, in bytes. Each further class ends at twice the length of the one before.
const FIRST_CLASS_BYTES: usize = 8 << 10;
const CLASSES: usize = (EAGER_BYTES_MAX / FIRST_CLASS_BYTES).ilog2() as usize + 1;
/// How often each transfer is measured before the first decision: the first bodies find caches and windows empty.
const FIRST_TRIES: u32 = 8;
/// The part of the time that may be lost by measuring the slower transfer again, as a divisor: a third of a percent.
const LOSS_DIVISOR: u64 = 300;
/// The least and the largest number of bodies between two tries of the slower transfer, for each body of a try.
const PAUSE_MIN: u64 = 32;
const PAUSE_MAX: u64 = 4096;
/// A body that took more than `SLOW_NUMERATOR / SLOW_DENOMINATOR` of the expected time may have been interrupted.
const SLOW_NUMERATOR: u64 = 3;
const SLOW_DENOMINATOR: u64 = 2;
/// After this number of such bodies in a row, the quickest of them is believed.
const SLOW_BODIES: u32 = 3;

/// How a body travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// In frames.
    Eager,
    /// The receiver reads it from the sender's memory.
    Read,
}

impl Transfer {
    fn other(self) -> Transfer {
        match self {
            Transfer::Eager => Transfer::Read,
            Transfer::Read => Transfer::Eager,
        }
    }
}

/// What a receiver wishes for: one bit for each class of lengths, set if bodies are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes(pub u8);

impl Wishes {
    /// Wishes that every body is read.
    pub const READ: Wishes = Wishes(u8::MAX);

    /// Returns the transfer of a body of this length.
    pub fn transfer_of(self, bytes: usize) -> Transfer {
        match class_of(bytes) {
            Some(class) if bytes > 0 && self.0 & 1 << class == 0 => Transfer::Eager,
            _ => Transfer::Read,
        }
    }
}

/// Returns the class of a body, or `None` if such bodies are never eager.
fn class_of(bytes: usize) -> Option<usize> {
    let class = bytes.div_ceil(FIRST_CLASS_BYTES).next_power_of_two().ilog2() as usize;
    (class < CLASSES).then_some(class)
}

/// What is known of one transfer, for a class of lengths.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The time in ns for 1024 bytes.
    cost: u64,
    bodies: u32,
    /// How many bodies in a row were much slower than expected, and the time of the quickest.
    slow: u32,
    slow_cost: u64,
}

impl Known {
    /// Notes a measured body. A quicker one counts at once, a slower one by an eighth; one that was much slower may have been
    /// interrupted.
    fn record(&mut self, cost: u64) {
        self.bodies = self.bodies.saturating_add(1);
        if self.bodies > 1 && cost > self.cost * SLOW_NUMERATOR / SLOW_DENOMINATOR {
            self.slow_cost = if self.slow == 0 { cost } else { self.slow_cost.min(cost) };
            self.slow += 1;
            if self.slow < SLOW_BODIES {
                return;
            }
            self.cost = self.slow_cost;
        } else if self.bodies == 1 || cost < self.cost {
            self.cost = cost;
        } else {
            self.cost += (cost - self.cost) / 8;
        }
        self.slow = 0;
    }
}

#[derive(Debug, Clone, Copy)]
struct Class {
    eager: Known,
    read: Known,
    /// The transfer that is measured first.
    first: Transfer,
    /// How many bodies have come since the slower transfer was tried, and how many came so then.
    since: u64,
    tried: u64,
}

impl Class {
    fn known(&self, transfer: Transfer) -> &Known {
        match transfer {
            Transfer::Eager => &self.eager,
            Transfer::Read => &self.read,
        }
    }

    /// Returns the quicker transfer, if both have been measured.
    fn best(&self) -> Option<Transfer> {
        let is_known = |transfer| self.known(transfer).bodies >= FIRST_TRIES;
        let best = if self.eager.cost <= self.read.cost { Transfer::Eager } else { Transfer::Read };
        (is_known(Transfer::Eager) && is_known(Transfer::Read)).then_some(best)
    }

    /// Returns after how many bodies the slower transfer is tried again. The slower it is, the rarer: each try then costs the same
    /// part of the time.
    fn pause(&self, best: Transfer) -> u64 {
        let (least, other) = (self.known(best).cost.max(1), self.known(best.other()).cost);
        let pause = other.saturating_sub(least).saturating_mul(LOSS_DIVISOR) / least;
        pause.clamp(PAUSE_MIN, PAUSE_MAX) * self.tried.max(1)
    }

    fn record(&mut self, transfer: Transfer, cost: u64) {
        let best = self.best();
        match transfer {
            Transfer::Eager => self.eager.record(cost),
            Transfer::Read => self.read.record(cost),
        }
        match best {
            Some(best) if best != transfer => {
                // Those that were sent before the sender knew of the next wish belong to the same try.
                self.tried = if self.since > 0 { 1 } else { self.tried + 1 };
                self.since = 0;
            }
            _ => self.since += 1,
        }
    }

    fn wish(&self) -> Transfer {
        match self.best() {
            Some(best) if self.since >= self.pause(best) => best.other(),
            Some(best) => best,
            None if self.known(self.first).bodies < FIRST_TRIES => self.first,
            None => self.first.other(),
        }
    }
}

/// What a receiver has learnt about the bodies of one link.
#[derive(Debug)]
pub struct Transfers {
    classes: [Class; CLASSES],
}

impl Transfers {
    /// Returns what is known before anything was measured: classes of bodies that are no longer than this are eager at first.
    pub fn new(eager_bytes: usize) -> Transfers {
        let class = |number: usize| {
            let first = if FIRST_CLASS_BYTES << number <= eager_bytes { Transfer::Eager } else { Transfer::Read };
            Class { eager: Known::default(), read: Known::default(), first, since: 0, tried: 0 }
        };
        Transfers { classes: std::array::from_fn(class) }
    }

    /// Notes that a body has taken this time, in ns, from its first frame, or from the end of the body before it, to its end.
    pub fn record(&mut self, bytes: usize, transfer: Transfer, ns: u64) {
        if let (Some(class), 1..) = (class_of(bytes), bytes) {
            self.classes[class].record(transfer, ns.saturating_mul(1024) / bytes as u64);
        }
    }

    /// Returns what the sender is to do.
    pub fn wishes(&self) -> Wishes {
        let bit = |(number, class): (usize, &Class)| u8::from(class.wish() == Transfer::Read) << number;
        Wishes(self.classes.iter().enumerate().map(bit).fold(0, |all, bit| all | bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Prng;

    /// A network: the time of a body in ns.
    type Model = fn(usize, Transfer) -> u64;

    /// A round trip takes 20 us, a byte 0.25 ns, or 0.7 ns in frames.
    fn slow_round_trip(bytes: usize, transfer: Transfer) -> u64 {
        match transfer {
            Transfer::Eager => bytes as u64 * 7 / 10,
            Transfer::Read => 20_000 + bytes as u64 / 4,
        }
    }

    /// A round trip takes 2 us, a byte 0.1 ns, or 0.3 ns in frames.
    fn hardware(bytes: usize, transfer: Transfer) -> u64 {
        match transfer {
            Transfer::Eager => bytes as u64 * 3 / 10,
            Transfer::Read => 2_000 + bytes as u64 / 10,
        }
    }

    /// Sends bodies, each as the wishes were `lag` bodies before, one in 20 of them interrupted. Returns the time, and that
    /// of the best transfer.
    fn sent(transfers: &mut Transfers, model: Model, bytes: usize, count: u64, lag: usize, seed: u64) -> (u64, u64) {
        let (mut random, mut under_way) = (Prng(seed), std::collections::VecDeque::new());
        let mut time = 0;
        for _ in 0..count {
            under_way.push_back(transfers.wishes().transfer_of(bytes));
            if under_way.len() > lag {
                let transfer = under_way.pop_front().unwrap();
                let exact = model(bytes, transfer);
                time += exact;
                let disturbed = exact + exact * random.below(10) / 100;
                transfers.record(bytes, transfer, if random.below(20) == 0 { 4 * disturbed } else { disturbed });
            }
        }
        let best = model(bytes, Transfer::Eager).min(model(bytes, Transfer::Read));
        (time, best * (count - lag as u64))
    }

    #[test]
    fn the_quicker_way_is_found_on_every_network_and_after_a_change_of_it() {
        for bytes in [9_000, 16 << 10, 40_000, 64 << 10, 128 << 10, 300_000, 512 << 10] {
            for (lag, seed) in [(0, 1), (0, 2), (1, 3), (64, 4)] {
                let mut transfers = Transfers::new(64 << 10);
                for model in [slow_round_trip as Model, hardware, slow_round_trip] {
                    sent(&mut transfers, model, bytes, 8_000, lag, seed);
                    let (time, best) = sent(&mut transfers, model, bytes, 8_000, lag, seed);
                    assert!(time * 100 <= best * 103, "{bytes} bytes, {lag} under transfer: {time} instead of {best}");
                }
            }
        }
    }

    #[test]
    fn before_anything_was_measured_short_bodies_are_eager_and_long_ones_are_read() {
        let wishes = Transfers::new(100_000).wishes();
        let eager = |bytes| wishes.transfer_of(bytes) == Transfer::Eager;
        assert!(eager(1) && eager(9000) && eager(64 << 10) && !eager((64 << 10) + 1) && !eager(EAGER_BYTES_MAX));
        assert!(!eager(0) && !eager(EAGER_BYTES_MAX + 1) && !eager(usize::MAX >> 1));
        assert_eq!(Wishes(0).transfer_of(EAGER_BYTES_MAX), Transfer::Eager);
        assert_eq!(Wishes(0).transfer_of(EAGER_BYTES_MAX + 1), Transfer::Read);
        assert_eq!(Wishes::READ.transfer_of(1), Transfer::Read);
    }

    #[test]
    fn each_class_learns_for_itself() {
        let mut transfers = Transfers::new(64 << 10);
        sent(&mut transfers, hardware, 64 << 10, 100, 0, 1);
        assert_eq!(transfers.wishes().transfer_of(64 << 10), Transfer::Read);
        assert_eq!(transfers.wishes().transfer_of(32 << 10), Transfer::Eager);
    }
}
