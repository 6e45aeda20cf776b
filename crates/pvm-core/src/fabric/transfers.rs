//! How bodies travel on a link: *eager*, that is in the frames themselves, or *read* by the receiver from the sender's
//! memory.
//!
//! An eager body crosses the network once, but is copied on both sides, frame by frame. A body that is read is
//! copied less, but its offer and the read cross the network before its bytes do. Which is quicker depends on the provider,
//! the network and the processors. So the receiver learns it, for each class of lengths ([`Explorer`]), and each of its frames
//! tells the sender what it wishes for.
use pvm_explorer::{Explorer, Rules};

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
/// How transfers are tried. Each is measured eight times before the first decision: the first bodies find caches and windows
/// empty.
const RULES: Rules = Rules { trials_min: 8, trials_max: 8, pause_min: 32, ..Rules::USUAL };

/// How a body travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// In frames.
    Eager,
    /// The receiver reads it from the sender's memory.
    Read,
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

#[derive(Debug, Clone, Copy)]
struct Class {
    /// The arms are the transfer that is measured first, and the other one.
    explorer: Explorer<2>,
    first: Transfer,
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
            Class { explorer: Explorer::new(&RULES), first }
        };
        Transfers { classes: std::array::from_fn(class) }
    }

    /// Notes that a body has taken this time, in ns, from its first frame, or from the end of the body before it, to its end.
    pub fn record(&mut self, bytes: usize, transfer: Transfer, ns: u64) {
        if let (Some(class), 1..) = (class_of(bytes), bytes) {
            let Class { explorer, first } = &mut self.classes[class];
            explorer.observe(2, usize::from(transfer != *first), ns.max(1) as f32 / bytes as f32);
        }
    }

    /// Returns what the sender is to do.
    pub fn wishes(&self) -> Wishes {
        let reads = |class: &Class| (class.explorer.next(2) == 0) == (class.first == Transfer::Read);
        let bit = |(number, class): (usize, &Class)| u8::from(reads(class)) << number;
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
            for (lag, seed) in (1..=5).flat_map(|seed| [(0, seed), (1, seed), (64, seed)]) {
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
