//! The way policy: how the two copies of a body between two tasks are made: through the caches, past them, or by string
//! instructions.
//!
//! Which way is the fastest depends on the processor, on whether the two cores share a cache, on the sizes of the caches,
//! and on what else the programs use, and the cores of a virtual machine may be moved. So an [`Explorer`] learns it, for
//! each class of lengths. The time of a message is that from the start of its send to the end of the receiver's copy.

use crate::copy::CopyMode;
use pvm_explorer::{CLOSE_RATIO, Explorer, Rules};
use std::fmt;

/// The ways, by their numbers: each of the two copies goes through the caches or past them, or both are made by string
/// instructions.
const ALL: [Way; WAYS] = [
    Way { copy_in: CopyMode::Cached, copy_out: CopyMode::Cached },
    Way { copy_in: CopyMode::Past, copy_out: CopyMode::Cached },
    Way { copy_in: CopyMode::Cached, copy_out: CopyMode::Past },
    Way { copy_in: CopyMode::Past, copy_out: CopyMode::Past },
    Way { copy_in: CopyMode::String, copy_out: CopyMode::String },
];
pub const WAYS: usize = 5;
const BY_STRING: usize = 4;
/// The shortest body for which there is a choice, in bytes: for a shorter one, a look at the clock would cost a noticeable
/// part of its time.
pub const BYTES_MIN: usize = 32 << 10;
/// A program mostly reads what it has received. If a body is shorter than this, in bytes, and its second copy bypasses the
/// caches, the program then waits for memory, which the time of the message does not show: so that time counts more.
const CACHED_BYTES: usize = 2 << 20;
const PAST_OUT_WEIGHT: f32 = 1.5;
/// The number of classes of lengths. A class begins at twice the length of the one before it; the last one has no end.
pub const CLASSES: usize = 12;
/// The length of the bodies of a trial, in bytes, and the largest number of messages in a row that it takes.
const TRIAL_BYTES: usize = 8 << 20;
const RUN_MAX: usize = 4;
/// While bodies go the best way, one is measured each time they add up to this length, in bytes: reading the clock costs
/// little against copying as many bytes.
const MEASURED_BYTES: usize = 1 << 20;
/// What is chosen, and what is measured for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Measured {
    /// Both copies, by the times of whole messages.
    #[default]
    Messages,
    /// The first copy, by its own time; the second one goes through the caches. The time that the reader needs is not
    /// known, so a copy past the caches, which the reader then fetches from memory, counts by [`PAST_IN_WEIGHT`].
    CopiesIn,
}

/// With two tasks on near cores of an AMD EPYC (Zen 4), past the caches is faster where the sender's copy takes less than 0.6
/// of the time that it takes through them (64 KiB, 256 KiB, 16 MiB), and slower where it takes 1.0 (1 MiB) or 1.3 (4 MiB).
const PAST_IN_WEIGHT: f32 = 1.25;

impl Measured {
    /// Returns how many ways there are to choose from: the first ones.
    fn ways(self) -> usize {
        if self == Measured::Messages { WAYS } else { 2 }
    }
    /// Returns how much a measured time counts.
    fn weight(self, bytes: usize, way: Way) -> f32 {
        match self {
            Measured::Messages if way.copy_out == CopyMode::Past && bytes < CACHED_BYTES => PAST_OUT_WEIGHT,
            Measured::CopiesIn if way.copy_in == CopyMode::Past => PAST_IN_WEIGHT,
            _ => 1.0,
        }
    }
}

/// One way to make the two copies of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Way {
    /// The sender's copy.
    pub copy_in: CopyMode,
    /// The receiver's copy.
    pub copy_out: CopyMode,
}

/// The number of bits that the number of a way takes.
pub const WAY_BITS: u32 = 3;
const _: () = assert!(WAYS <= 1 << WAY_BITS);

impl Way {
    /// Returns the way of a number of [`WAY_BITS`] bits; further bits do not count, and a number that no way has stands for
    /// copies through the caches.
    pub fn from_number(number: usize) -> Way {
        ALL.get(number & ((1 << WAY_BITS) - 1)).copied().unwrap_or_default()
    }
    /// Returns the number of the way, below [`WAYS`].
    pub fn number(self) -> usize {
        ALL.iter().position(|way| *way == self).unwrap_or_default()
    }
}

/// Chooses the ways of messages from one task to another.
#[derive(Debug)]
pub struct WayPolicy {
    measured: Measured,
    classes: [Explorer<WAYS>; CLASSES],
}

impl Default for WayPolicy {
    fn default() -> WayPolicy {
        WayPolicy { measured: Measured::Messages, classes: [Explorer::new(&Rules::USUAL); CLASSES] }
    }
}

/// Returns the class of bodies of `bytes` bytes, below [`CLASSES`].
pub fn class_of(bytes: usize) -> usize {
    (bytes.max(BYTES_MIN) / BYTES_MIN).ilog2().min(CLASSES as u32 - 1) as usize
}

impl WayPolicy {
    /// Returns a policy that chooses the first copy only, and is told the times of first copies only.
    pub fn of_copies_in() -> WayPolicy {
        WayPolicy { measured: Measured::CopiesIn, ..WayPolicy::default() }
    }

    /// Returns how to copy a body of `bytes` bytes, and whether its time should be measured.
    pub fn choose(&mut self, bytes: usize) -> (Way, bool) {
        let (class, ways) = (class_of(bytes), self.measured.ways());
        if self.classes[class].is_new() {
            self.assume(class, ways);
        }
        let run = (TRIAL_BYTES >> bytes.ilog2()).clamp(1, RUN_MAX) as u16;
        let one_in = (MEASURED_BYTES >> bytes.ilog2()).max(1) as u32;
        let (way, is_measured) = self.classes[class].choose(ways, run, one_in);
        (Way::from_number(way), is_measured)
    }

    /// Assumes of a class what is known of the nearest one.
    #[cold]
    fn assume(&mut self, class: usize, ways: usize) {
        let known = (0..CLASSES).filter(|other| self.classes[*other].is_settled(ways));
        if let Some(nearest) = known.min_by_key(|other| other.abs_diff(class)) {
            self.classes[class] = self.classes[nearest].similar();
        }
    }

    /// Notes that a message took so long, in ns.
    pub fn record(&mut self, bytes: usize, way: Way, ns: u64) {
        let (class, ways) = (&mut self.classes[class_of(bytes)], self.measured.ways());
        class.record(way.number(), ns.max(1) as f32 / bytes as f32 * self.measured.weight(bytes, way));
        // String instructions are quicker than copies through the caches, but they wait for the same lines.
        let (cached, best) = (class.cost(Way::default().number()), class.cost(class.best(ways)));
        if ways > BY_STRING && class.cost(BY_STRING).is_infinite() && cached.is_finite() && cached > best * CLOSE_RATIO
        {
            class.assume(BY_STRING, cached);
        }
    }

    /// Returns the way that messages of `bytes` bytes go, and its time in ns a byte; `None` before one was measured.
    pub fn best(&self, bytes: usize) -> Option<(Way, f32)> {
        let class = &self.classes[class_of(bytes)];
        let best = class.best(self.measured.ways());
        let (way, cost) = (Way::from_number(best), class.cost(best));
        cost.is_finite().then(|| (way, cost / self.measured.weight(bytes, way)))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |mode| match mode {
            CopyMode::Cached => "through the caches",
            CopyMode::Past => "past the caches",
            CopyMode::String => "by string instructions",
        };
        write!(to, "in {}, out {}", name(self.copy_in), name(self.copy_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of a machine: the time of a message in ns a byte, by its length, its way, and the way before it.
    type Model = fn(usize, Way, Way) -> f32;

    /// Returns which of the two copies bypass the caches, and how many times as long string instructions take as copies
    /// through the caches, which is `string` on the modelled machine.
    fn kinds(way: Way, string: f32) -> ((bool, bool), f32) {
        let is_string = way.copy_in == CopyMode::String;
        ((way.copy_in == CopyMode::Past, way.copy_out == CopyMode::Past), if is_string { string } else { 1.0 })
    }

    fn pick(is_first: bool, first: f32, second: f32) -> f32 {
        if is_first { first } else { second }
    }

    /// Two cores with a common cache of 32 MiB: lines go quickly from core to core until two bodies and their copies no
    /// longer fit.
    fn small_shared_cache(bytes: usize, way: Way, _: Way) -> f32 {
        let fits = bytes <= 6 << 20;
        let (past, string) = kinds(way, 1.1);
        string
            * match past {
                (false, false) => pick(fits, 0.030, 0.070),
                (false, true) => 0.057,
                (true, false) => pick(fits, 0.055, 0.085),
                (true, true) => pick(fits, 0.075, 0.076),
            }
    }

    /// Second-level caches of 2 MiB, and a third-level cache of 260 MiB that is far from each core.
    fn large_caches(bytes: usize, way: Way, _: Way) -> f32 {
        let near = bytes <= 1 << 20;
        let (past, string) = kinds(way, 0.85);
        string
            * match past {
                (false, false) => pick(near, 0.067, 0.089),
                (false, true) => 0.11,
                (true, false) => pick(near, 0.10, 0.080),
                (true, true) => pick(near, 0.13, 0.12),
            }
    }

    /// Cores that share no cache: lines that the other core has are taken back slowly.
    fn distant_cores(bytes: usize, way: Way, _: Way) -> f32 {
        let (past, string) = kinds(way, 1.0);
        string
            * match past {
                (false, false) => pick(bytes <= 512 << 10, 0.060, 0.25),
                (false, true) => 0.37,
                (true, false) => 0.057,
                (true, true) => pick(bytes <= 4 << 20, 0.059, 0.0515),
            }
    }

    /// A processor whose non-temporal stores are slow.
    fn slow_non_temporal_stores(_: usize, way: Way, _: Way) -> f32 {
        let (past, string) = kinds(way, 3.0);
        string * (0.05 + if past.0 { 0.6 } else { 0.0 } + if past.1 { 0.45 } else { 0.0 })
    }

    /// As [`small_shared_cache`], but a message that finds the cell in no cache takes long.
    fn cells_in_caches(bytes: usize, way: Way, before: Way) -> f32 {
        let is_cold = before.copy_in == CopyMode::Past && bytes <= 6 << 20;
        small_shared_cache(bytes, way, before) + if way.copy_in != CopyMode::Past && is_cold { 0.08 } else { 0.0 }
    }

    /// A small generator of numbers below 1, always the same ones.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> f32 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 40) as f32 / (1 << 24) as f32
        }
        /// Returns a time that is up to a tenth longer, and one time in 20 three times as long.
        fn disturb(&mut self, cost: f32) -> f32 {
            let cost = cost * (1.0 + self.next() / 10.0);
            if self.next() < 0.05 { 3.0 * cost } else { cost }
        }
    }

    /// Sends `total` bytes in messages of `bytes` bytes. Returns the undisturbed time, in ns.
    fn send(policy: &mut WayPolicy, model: Model, noise: &mut Noise, bytes: usize, total: usize) -> f64 {
        let (mut time, mut before) = (0.0, Way::default());
        for _ in 0..total.div_ceil(bytes) {
            let (way, is_measured) = policy.choose(bytes);
            let cost = model(bytes, way, before);
            before = way;
            time += f64::from(cost) * bytes as f64;
            if is_measured {
                policy.record(bytes, way, (noise.disturb(cost) * bytes as f32) as u64);
            }
        }
        time
    }

    fn least(model: Model, bytes: usize, total: usize) -> f64 {
        let cost = (0..WAYS).map(Way::from_number).map(|way| model(bytes, way, way)).fold(f32::INFINITY, f32::min);
        f64::from(cost) * (total.div_ceil(bytes) * bytes) as f64
    }

    const MODELS: [(&str, Model); 5] = [
        ("small shared cache", small_shared_cache),
        ("large caches", large_caches),
        ("distant cores", distant_cores),
        ("slow non-temporal stores", slow_non_temporal_stores),
        ("cells in caches", cells_in_caches),
    ];
    const LENGTHS: [usize; 8] = [128 << 10, 200 << 10, 512 << 10, 1 << 20, 3 << 20, 4 << 20, 8 << 20, 16 << 20];

    #[test]
    fn after_64_mib_it_is_within_5_percent_of_the_best_fixed_choice_on_every_machine() {
        for (name, model) in MODELS {
            for bytes in LENGTHS {
                for seed in 1..=5 {
                    let (mut policy, mut noise) = (WayPolicy::default(), Noise(seed));
                    send(&mut policy, model, &mut noise, bytes, 64 << 20);
                    let (time, best) =
                        (send(&mut policy, model, &mut noise, bytes, 4 << 30), least(model, bytes, 4 << 30));
                    assert!(time <= 1.05 * best, "{name}, {bytes} bytes, seed {seed}: {}", time / best);
                }
            }
        }
    }

    /// A machine's times of a sender's copy, in ns a byte, past the caches and through them, and which of the two makes the
    /// message come sooner.
    const COPIES_IN: [(&str, [f32; 2], CopyMode); 6] = [
        ("lines that the reader has just read", [0.028, 0.155], CopyMode::Past),
        ("a body that fits into the second cache", [0.043, 0.043], CopyMode::Cached),
        ("a body that fits into the shared cache", [0.040, 0.030], CopyMode::Cached),
        ("a body that fits into no cache", [0.063, 0.108], CopyMode::Past),
        ("distant cores", [0.050, 0.400], CopyMode::Past),
        ("slow non-temporal stores", [0.600, 0.090], CopyMode::Cached),
    ];

    #[test]
    fn the_first_copy_alone_is_learnt_on_every_machine() {
        for (name, [past, cached], best) in COPIES_IN {
            for bytes in LENGTHS {
                let (mut policy, mut noise, mut sent) = (WayPolicy::of_copies_in(), Noise(4), 0);
                let total = (256 << 20) / bytes;
                for number in 0..2 * total {
                    let (way, is_measured) = policy.choose(bytes);
                    assert_eq!(way.copy_out, CopyMode::Cached);
                    sent += usize::from(number >= total && way.copy_in == best);
                    if is_measured {
                        let cost = if way.copy_in == CopyMode::Past { past } else { cached };
                        policy.record(bytes, way, (noise.disturb(cost) * bytes as f32) as u64);
                    }
                }
                assert!(sent * 100 >= total * 95, "{name}, {bytes} bytes: {sent} of {total}");
                assert_eq!(policy.best(bytes).unwrap().0.copy_in, best, "{name}, {bytes} bytes");
            }
        }
    }

    #[test]
    fn cores_that_are_moved_are_noticed() {
        let (mut policy, mut noise) = (WayPolicy::default(), Noise(7));
        let bytes = 4 << 20;
        for model in [small_shared_cache as Model, distant_cores, small_shared_cache, slow_non_temporal_stores] {
            send(&mut policy, model, &mut noise, bytes, 12 << 30);
            let (time, best) = (send(&mut policy, model, &mut noise, bytes, 2 << 30), least(model, bytes, 2 << 30));
            assert!(time <= 1.05 * best, "{}", time / best);
            let (way, cost) = policy.best(bytes).unwrap();
            assert!(cost <= 1.6 * model(bytes, way, way), "{way:?} {cost}");
        }
    }

    #[test]
    fn each_class_of_lengths_learns_for_itself() {
        let (mut policy, mut noise) = (WayPolicy::default(), Noise(3));
        send(&mut policy, distant_cores, &mut noise, 16 << 20, 256 << 20);
        assert_eq!(policy.best(16 << 20).unwrap().0, Way { copy_in: CopyMode::Past, copy_out: CopyMode::Past });
        assert_eq!(policy.best(1 << 20), None);
        assert_eq!(
            WayPolicy::default().choose(BYTES_MIN).0,
            Way::default(),
            "the first message goes through the caches"
        );
    }

    #[test]
    fn what_is_much_slower_for_nearby_lengths_is_not_tried_at_once() {
        let (mut known, mut noise) = (WayPolicy::default(), Noise(5));
        send(&mut known, distant_cores, &mut noise, 1 << 20, 256 << 20);
        let bytes = 4 << 20;
        let least = least(distant_cores, bytes, 32 * bytes);
        let mut time = |mut policy| send(&mut policy, distant_cores, &mut noise, bytes, 32 * bytes) / least;
        let (near, first) = (time(known), time(WayPolicy::default()));
        assert!(near <= 1.05 && first >= 1.3, "{near} {first}");
    }

    #[test]
    fn a_way_that_is_clearly_slower_is_tried_with_two_messages() {
        for (name, model) in MODELS {
            let (mut policy, mut noise) = (WayPolicy::default(), Noise(2));
            let (mut before, bytes) = (Way::default(), 1 << 20);
            let mut sent = [0; WAYS];
            for _ in 0..16 {
                let (way, is_measured) = policy.choose(bytes);
                let cost = model(bytes, way, std::mem::replace(&mut before, way)) * (1.0 + noise.next() / 10.0);
                if is_measured {
                    policy.record(bytes, way, (cost * bytes as f32) as u64);
                }
                sent[way.number()] += 1;
            }
            let best = policy.best(bytes).unwrap().0;
            let cost = |way: Way| model(bytes, way, way) * Measured::Messages.weight(bytes, way);
            // The first way is not known to be slower before another one was measured.
            for way in (1..WAYS).map(Way::from_number).filter(|way| cost(*way) > 1.2 * CLOSE_RATIO * cost(best)) {
                let tries = if cost(way) > 8.0 * cost(best) { 2 } else { 1 };
                assert!(sent[way.number()] <= 2 * tries, "{name}: {sent:?}");
            }
        }
    }

    #[test]
    fn messages_that_are_never_measured_go_through_the_caches() {
        let mut policy = WayPolicy::default();
        let past = (0..1000).filter(|_| policy.choose(1 << 20).0 != Way::default()).count();
        assert!(past <= 200, "{past}");
    }
}
