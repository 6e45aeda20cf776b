//! Tries the copy policy on models of machines.
use super::*;
use crate::copy_policy::CopyWay::{Cached, PastBoth, PastIn, Together};

/// A machine, by speeds in bytes a nanosecond (GB/s).
struct Machine {
    name: &'static str,
    /// What fits into the caches that both cores reach, in bytes.
    shared_cache_bytes: usize,
    /// What fits into a core's own cache, in bytes.
    own_cache_bytes: usize,
    /// Writing lines that the other core holds.
    taking: f64,
    /// Reading lines from the other core's own cache, and from the common cache.
    from_core: f64,
    from_cache: f64,
    /// Reading and writing memory through the caches, and writing it past them.
    memory: f64,
    past: f64,
    /// A copy by the kernel, of one core.
    kernel: f64,
}

const MACHINES: [Machine; 5] = [
    Machine {
        name: "small shared L3",
        shared_cache_bytes: 32 << 20,
        own_cache_bytes: 1 << 20,
        taking: 25.0,
        from_core: 12.0,
        from_cache: 30.0,
        memory: 6.0,
        past: 13.0,
        kernel: 6.0,
    },
    Machine {
        name: "large L3 and 2 MiB L2",
        shared_cache_bytes: 260 << 20,
        own_cache_bytes: 2 << 20,
        taking: 6.0,
        from_core: 9.0,
        from_cache: 10.0,
        memory: 5.0,
        past: 4.0,
        kernel: 6.5,
    },
    Machine {
        name: "distant cores",
        shared_cache_bytes: 32 << 20,
        own_cache_bytes: 1 << 20,
        taking: 2.5,
        from_core: 8.0,
        from_cache: 25.0,
        memory: 9.0,
        past: 13.0,
        kernel: 2.5,
    },
    Machine {
        name: "slow non-temporal stores",
        shared_cache_bytes: 32 << 20,
        own_cache_bytes: 1 << 20,
        taking: 10.0,
        from_core: 10.0,
        from_cache: 20.0,
        memory: 8.0,
        past: 2.0,
        kernel: 4.0,
    },
    Machine {
        name: "quick copies by the kernel",
        shared_cache_bytes: 16 << 20,
        own_cache_bytes: 1 << 20,
        taking: 5.0,
        from_core: 6.0,
        from_cache: 8.0,
        memory: 4.0,
        past: 4.0,
        kernel: 9.0,
    },
];

/// Whether the two copies of a body overlap (a pipelined send) or follow each other (a packed message).
#[derive(Clone, Copy)]
enum Order {
    Overlap,
    Follow,
}

impl Machine {
    /// Returns how long the body takes, in ns. Two bodies in the programs and two in the heaps share the caches.
    fn time(&self, order: Order, way: CopyWay, bytes: usize) -> f64 {
        let fits = 4 * bytes <= self.shared_cache_bytes;
        let length = bytes as f64;
        let read = if !fits {
            self.memory
        } else if 2 * bytes <= self.own_cache_bytes {
            self.from_core
        } else {
            self.from_cache
        };
        let (into, out) = match way {
            Cached => (if fits { self.taking } else { self.memory }, read),
            // Bytes that have gone past the caches are read from memory, ahead of their use.
            PastIn => (self.past, self.past.max(self.memory) * if fits { 1.0 } else { 0.9 }),
            PastBoth => (self.past, self.past * if fits { 0.8 } else { 1.0 }),
            Together => return 3000.0 + length / (2.0 * self.kernel),
        };
        match order {
            Order::Overlap => length / f64::min(into, out),
            Order::Follow => length / into + length / out,
        }
    }

    fn ways(order: Order) -> &'static [CopyWay] {
        match order {
            Order::Overlap => CopyWay::ANY,
            Order::Follow => CopyWay::THROUGH_HEAP,
        }
    }

    fn best_time(&self, order: Order, bytes: usize) -> f64 {
        Machine::ways(order).iter().map(|way| self.time(order, *way, bytes)).fold(f64::INFINITY, f64::min)
    }
}

/// Numbers that look random, the same in every run.
struct Noise(u64);

impl Noise {
    /// Returns a number from 0 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f64 / (1u64 << 24) as f64
    }
}

/// Sends bodies of that length, `total` bytes in all, on the machine. Every time is up to a tenth longer than modelled;
/// in `disturbed` of all copies a time slice of another process falls into one of the pieces. Returns the modelled time
/// of all copies.
fn send(
    policy: &mut CopyPolicy,
    machine: &Machine,
    order: Order,
    (bytes, total): (usize, usize),
    disturbed: f64,
    noise: &mut Noise,
) -> f64 {
    let mut sum = 0.0;
    for _ in 0..total / bytes {
        let choice = policy.choose(bytes, Machine::ways(order));
        let time = machine.time(order, choice.way, bytes);
        sum += time;
        if !choice.is_timed {
            continue;
        }
        let mut measured = PieceTimes::default();
        let pieces = (bytes / (32 << 10)).clamp(2, 64);
        let late = (noise.next() < disturbed).then(|| (noise.next() * pieces as f64) as usize);
        for piece in 0..pieces {
            let pause = if late == Some(piece) { 4e6 } else { 0.0 };
            let nanoseconds = time / pieces as f64 * (1.0 + noise.next() / 10.0) + pause;
            measured.add(Duration::from_nanos(nanoseconds as u64));
        }
        if let Some(time) = measured.total() {
            policy.record(choice.way, bytes, time);
        }
    }
    sum
}

const SIZES: [usize; 6] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
const LEARNING_BYTES: usize = 64 << 20;

#[test]
fn after_64_mib_the_policy_is_as_fast_as_the_best_fixed_choice() {
    for machine in &MACHINES {
        for order in [Order::Overlap, Order::Follow] {
            for bytes in SIZES {
                for seed in 0..20 {
                    let (mut policy, mut noise) = (CopyPolicy::default(), Noise(seed));
                    send(&mut policy, machine, order, (bytes, LEARNING_BYTES + bytes), 0.0, &mut noise);
                    let count = 64.max(LEARNING_BYTES / bytes);
                    let taken = send(&mut policy, machine, order, (bytes, count * bytes), 0.0, &mut noise);
                    let best = machine.best_time(order, bytes) * count as f64;
                    assert!(taken <= 1.05 * best, "{}, {bytes} bytes: {:.3} times", machine.name, taken / best);
                }
            }
        }
    }
}

#[test]
fn copies_that_other_processes_disturb_do_not_decide() {
    for machine in &MACHINES {
        for bytes in SIZES {
            let (mut lost, seeds) = (0.0, 40);
            for seed in 0..seeds {
                let (mut policy, mut noise) = (CopyPolicy::default(), Noise(seed));
                let length = (bytes, LEARNING_BYTES.max(100 * bytes));
                send(&mut policy, machine, Order::Overlap, length, 0.1, &mut noise);
                let taken = send(&mut policy, machine, Order::Overlap, length, 0.1, &mut noise);
                let best = machine.best_time(Order::Overlap, bytes) * (length.1 / bytes) as f64;
                lost += taken / best / seeds as f64;
            }
            assert!(lost <= 1.05, "{}, {bytes} bytes: {lost:.3} times", machine.name);
        }
    }
}

#[test]
fn cores_that_are_moved_apart_and_together_are_noticed() {
    let [near, _, distant, ..] = &MACHINES;
    let (mut policy, mut noise) = (CopyPolicy::default(), Noise(1));
    let length = (256 << 10, 256 << 20);
    for machine in [near, distant, near, distant] {
        send(&mut policy, machine, Order::Overlap, length, 0.0, &mut noise);
        let taken = send(&mut policy, machine, Order::Overlap, length, 0.0, &mut noise);
        let best = machine.best_time(Order::Overlap, length.0) * (length.1 / length.0) as f64;
        assert!(taken <= 1.05 * best, "{}: {:.3} times", machine.name, taken / best);
    }
}

#[test]
fn the_machines_differ_in_their_best_ways() {
    let best = |machine: &Machine, bytes| {
        let by_time = |one: &&CopyWay, other: &&CopyWay| {
            f64::total_cmp(&machine.time(Order::Overlap, **one, bytes), &machine.time(Order::Overlap, **other, bytes))
        };
        *CopyWay::ANY.iter().min_by(by_time).unwrap()
    };
    let all: Vec<CopyWay> = MACHINES.iter().flat_map(|machine| SIZES.map(|bytes| best(machine, bytes))).collect();
    for way in CopyWay::ALL {
        assert!(all.contains(&way), "{way:?} is nowhere the best");
    }
}

#[test]
fn most_copies_are_not_timed() {
    let (mut policy, mut noise) = (CopyPolicy::default(), Noise(7));
    send(&mut policy, &MACHINES[0], Order::Overlap, (64 << 10, 64 << 20), 0.0, &mut noise);
    let timed = (0..8000).filter(|_| policy.choose(64 << 10, CopyWay::ANY).is_timed).count();
    assert!((250..=900).contains(&timed), "{timed}");
}

#[test]
fn without_times_copies_go_through_the_caches() {
    let mut policy = CopyPolicy::default();
    assert_eq!(policy.best(1 << 20), None);
    let first: Vec<CopyWay> = (0..1000).map(|_| policy.choose(1 << 20, CopyWay::THROUGH_HEAP).way).collect();
    assert!(first.iter().all(|way| *way == Cached));
    policy.record(Cached, 1 << 20, Duration::from_micros(100));
    assert_eq!(policy.best(1 << 20), None, "the first copy fills page tables and caches");
    for way in [PastIn, Cached, PastBoth] {
        policy.record(way, 1 << 20, Duration::from_micros(if way == PastIn { 50 } else { 100 }));
    }
    assert_eq!(policy.best(1 << 20), Some(PastIn));
    assert_eq!(policy.best(64 << 10), None);
}

#[test]
fn a_time_with_one_very_long_piece_does_not_count() {
    let mut times = PieceTimes::default();
    assert_eq!(times.total(), None);
    (0..PIECES_MIN).for_each(|_| times.add(Duration::from_micros(10)));
    assert_eq!(times.total(), Some(Duration::from_micros(80)));
    times.add(Duration::from_millis(1));
    assert_eq!(times.total(), None);
}
