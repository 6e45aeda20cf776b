//! Compares the model with theory: rates that the standard allows, the efficiency of a hub under overload (Metcalfe
//! and Boggs 1976), the probability of a second collision, and the exact loss of an incast.

use super::hub::{Contention, Hub, JAM_BITS, slot};
use super::model::{Config, Ether, Medium, PORT_BYTES_MAX, PROPAGATION_BITS};
use super::wire::{CHECKSUM_BYTES, FRAME_BYTES_MIN, Frame, GAP_BITS, PREAMBLE_BITS, PortCounters, Rate, SECOND, Time};
use anyhow::{Result, ensure};

/// The longest frame, checksum included.
const FRAME_BYTES_MAX: usize = 1518;
/// How far a measured efficiency may be from the exact formula.
const EFFICIENCY_MARGIN: f64 = 0.01;
/// How far a measured number of collisions for each frame may be from the exact formula, as a fraction of the formula's
/// value.
const COLLISION_MARGIN: f64 = 0.06;
/// The number of frames in the queue of each sender under overload. A frame that arrives is queued again, a frame that
/// the host gives up is not. So this number is higher than the number of frames that a host gives up.
const BACKLOG: usize = 1000;
/// The size of a queue for these frames, in bytes.
const BACKLOG_BYTES: usize = BACKLOG * FRAME_BYTES_MAX;
/// The duration of an overload whose result is compared with an exact value, in frames.
const FRAMES: u64 = 30_000;
/// The duration of an overload whose result is compared with a bound, in frames.
const FEW_FRAMES: u64 = 8_000;
/// How often each first collision is repeated, with other seeds.
const TRIALS: u64 = 2000;

/// Checks a part of the model with a seed. Returns what was measured.
type Check = fn(u64) -> Result<String>;

/// All checks, with what must be true.
const CHECKS: &[(&str, Check)] = &[
    ("one sender fills the wire with frames, preambles and gaps", one_sender),
    ("the efficiency of ideal contention is that of Metcalfe and Boggs", ideal_contention),
    ("backoff under overload is as efficient as ideal contention, or more", backoff_under_overload),
    ("after a first collision of Q hosts the next attempt succeeds with probability Q / 2^Q", second_attempt),
    ("a switch forwards at the full rate and delays a frame by its own length", switch_forwards),
    ("an incast drops exactly what does not fit into the port's buffer", incast),
    ("the same seed has the same result, another seed another one", seeds),
];

/// Makes a frame with this number of bytes on the wire. Its first byte names the sender.
fn frame(from: usize, to: Option<usize>, stored_bytes: usize) -> Frame {
    let mut bytes = vec![0; stored_bytes - CHECKSUM_BYTES];
    bytes[0] = u8::try_from(from).expect("a test has few hosts");
    Frame { to, bytes: bytes.into() }
}

/// Returns the time that a frame occupies the wire, with its preamble and the gap behind it.
fn period(rate: Rate, stored_bytes: usize) -> Time {
    rate.bits(PREAMBLE_BITS + GAP_BITS) + rate.bytes(stored_bytes)
}

/// Lets the first `senders` hosts send to the last host as fast as they can, for the time `time`. Returns the counters.
fn overload(mut ether: Ether, senders: usize, stored_bytes: usize, time: Time) -> Vec<PortCounters> {
    let to = Some(senders);
    for from in 0..senders {
        let frame = frame(from, to, stored_bytes);
        (0..BACKLOG).for_each(|_| ether.send(0, from, frame.clone()));
    }
    while let Some(now) = ether.next_event().filter(|now| *now <= time) {
        ether.advance(now);
        while let Some(delivery) = ether.poll_delivery() {
            ether.send(now, delivery.frame.bytes[0].into(), delivery.frame);
        }
    }
    ether.counters().ports
}

fn hub(rate: Rate, hosts: usize, propagation_bits: u64, contention: Contention, seed: u64) -> Ether {
    let propagation = rate.bits(propagation_bits);
    Ether::Hub(Hub::new(rate, hosts, propagation, contention, BACKLOG_BYTES, seed))
}

/// Checks the number of frames in a second, which follows from the standard and is in every textbook.
fn one_sender(seed: u64) -> Result<String> {
    let mut lines = Vec::new();
    // At 1 Gbit/s, a hub extends short frames to its slot.
    let rows = [
        (10, FRAME_BYTES_MIN, 14_880, 14_880),
        (10, FRAME_BYTES_MAX, 812, 812),
        (100, FRAME_BYTES_MAX, 8_127, 8_127),
        (1000, FRAME_BYTES_MIN, 234_962, 1_488_095),
    ];
    for (megabits, bytes, on_hub, on_switch) in rows {
        let rate = Rate::of_megabits(megabits)?;
        // A tenth of a second is enough at the higher rates.
        let parts = if megabits > 10 { 10 } else { 1 };
        for (medium, expected) in
            [(Medium::Hub, on_hub), (Medium::Switch { port_bytes_max: PORT_BYTES_MAX }, on_switch)]
        {
            let ether =
                Ether::new(&Config { seed, host_queue_bytes_max: BACKLOG_BYTES, ..Config::new(rate, medium) }, 2);
            let sent = overload(ether, 1, bytes, SECOND / parts)[0].sent * parts;
            // Up to two frames may be missing: because of the first gap, and of the frame that is on the wire at the
            // end.
            ensure!(
                sent <= expected + parts && sent + 2 * parts >= expected,
                "{rate}, {bytes} bytes: {sent} frames in a second instead of {expected}"
            );
            lines.push(format!("{rate}, {bytes} B: {sent}/s"));
        }
    }
    Ok(lines.join("; "))
}

/// Predictions of Metcalfe and Boggs's model of contention: Q hosts wait, and in each slot each host sends with
/// probability 1/Q.
struct Theory {
    /// The probability that exactly one sends.
    acquisition: f64,
    /// The probability that none sends.
    empty: f64,
}

impl Theory {
    fn of(hosts: usize) -> Theory {
        let silent = 1.0 - 1.0 / hosts as f64;
        Theory { acquisition: silent.powi(hosts as i32 - 1), empty: silent.powi(hosts as i32) }
    }

    /// Returns the mean number of slots without a frame between two frames: W in the formula of Metcalfe and Boggs.
    fn slots(&self) -> f64 {
        (1.0 - self.acquisition) / self.acquisition
    }

    /// Returns the efficiency by the formula of Metcalfe and Boggs, E = P/C / (P/C + W * T), where all slots take the
    /// same time T.
    fn efficiency(&self, packet: f64, slot: f64) -> f64 {
        packet / (packet + self.slots() * slot)
    }

    /// Returns the efficiency if a slot with a collision takes another time than an empty slot, and the carrier of a
    /// frame is heard for the time `tail` after the frame.
    fn exact_efficiency(&self, packet: f64, tail: f64, empty: f64, collision: f64) -> f64 {
        let (none, several) = (self.empty, 1.0 - self.empty - self.acquisition);
        packet / (packet + tail + (none * empty + several * collision) / self.acquisition)
    }
}

/// Checks efficiency and collisions against the formulas for ideal contention.
fn ideal_contention(seed: u64) -> Result<String> {
    let rate = Rate::Ten;
    // The longest cable: a collision is noticed just within a slot.
    let propagation_bits = 224;
    let tail = propagation_bits as f64;
    let collision = (2 * propagation_bits + JAM_BITS + GAP_BITS) as f64;
    let empty = slot(rate) as f64 / rate.bit() as f64;
    let mut lines = Vec::new();
    for hosts in [2, 10, 32] {
        for bytes in [FRAME_BYTES_MIN, FRAME_BYTES_MAX] {
            let theory = Theory::of(hosts);
            let packet = period(rate, bytes) as f64 / rate.bit() as f64;
            let expected = theory.exact_efficiency(packet, tail, empty, collision);
            let ether = hub(rate, hosts + 1, propagation_bits, Contention::Ideal(hosts), seed);
            let measured = Measured::overload(ether, hosts, rate, bytes, FRAMES);
            let (name, classic) = (format!("{hosts} x {bytes} B"), theory.efficiency(packet, empty));
            ensure!(
                (measured.efficiency - expected).abs() < EFFICIENCY_MARGIN,
                "{name}: efficiency {:.3} instead of {expected:.3}",
                measured.efficiency
            );
            // In a slot, one host sends on average. So the number of attempts that collide is the number of slots
            // without a frame.
            ensure!(
                (measured.collisions / theory.slots() - 1.0).abs() < COLLISION_MARGIN,
                "{name}: {:.3} collisions for each frame instead of {:.3}",
                measured.collisions,
                theory.slots()
            );
            lines.push(format!("{name}: {:.3} (exact {expected:.3}, M&B {classic:.3})", measured.efficiency));
        }
    }
    Ok(lines.join("; "))
}

/// The result of an overload.
struct Measured {
    /// The share of the time in which the wire carried frames, with preambles and gaps.
    efficiency: f64,
    /// The attempts that collided, for each frame.
    collisions: f64,
}

impl Measured {
    fn overload(ether: Ether, senders: usize, rate: Rate, stored_bytes: usize, frames: u64) -> Measured {
        let time = frames * period(rate, stored_bytes);
        let ports = overload(ether, senders, stored_bytes, time);
        let sent: u64 = ports.iter().map(|port| port.sent).sum();
        let collisions: u64 = ports.iter().map(|port| port.collisions).sum();
        Measured {
            efficiency: (sent * period(rate, stored_bytes)) as f64 / time as f64,
            collisions: collisions as f64 / sent as f64,
        }
    }
}

/// Checks that backoff is at least as efficient as the formula says. A host that has just sent draws from a small range
/// and often sends again (the capture effect), so a hub under overload carries more, as Boggs, Mogul and Kent measured
/// in 1988.
fn backoff_under_overload(seed: u64) -> Result<String> {
    let rate = Rate::Ten;
    let mut lines = Vec::new();
    for hosts in [2, 10, 32] {
        for bytes in [FRAME_BYTES_MIN, FRAME_BYTES_MAX] {
            let ether = hub(rate, hosts + 1, PROPAGATION_BITS, Contention::Backoff, seed);
            let measured = Measured::overload(ether, hosts, rate, bytes, FEW_FRAMES);
            let packet = period(rate, bytes) as f64;
            let bound = Theory::of(hosts).efficiency(packet, slot(rate) as f64);
            ensure!(
                measured.efficiency >= bound && measured.efficiency <= 1.0,
                "{hosts} x {bytes} B: efficiency {:.3}, at least {bound:.3} expected",
                measured.efficiency
            );
            lines.push(format!(
                "{hosts} x {bytes} B: {:.3} (M&B {bound:.3}), {:.2} collisions a frame",
                measured.efficiency, measured.collisions
            ));
        }
    }
    Ok(lines.join("; "))
}

/// Checks how often the attempt after a first collision succeeds. All hosts begin together and collide. Each then waits
/// no slot or one slot. If one of them alone waits no slot, it sends its frame; otherwise there is another collision.
fn second_attempt(seed: u64) -> Result<String> {
    let mut lines = Vec::new();
    for hosts in [2, 3, 5, 8] {
        let mut successes = 0;
        for trial in 0..TRIALS {
            let trial = seed * TRIALS + trial;
            let mut ether = hub(Rate::Ten, hosts, PROPAGATION_BITS, Contention::Backoff, trial);
            (0..hosts).for_each(|from| ether.send(0, from, frame(from, None, FRAME_BYTES_MAX)));
            while ether.counters().sum(|port| port.sent) == 0 {
                ether.advance(ether.next_event().expect("no frame is lost"));
            }
            successes += usize::from(ether.counters().collisions() == hosts as u64);
        }
        let share = successes as f64 / TRIALS as f64;
        let expected = hosts as f64 / f64::from(1 << hosts);
        let deviation = (expected * (1.0 - expected) / TRIALS as f64).sqrt();
        ensure!((share - expected).abs() < 5.0 * deviation, "{hosts} hosts: {share:.3} instead of {expected:.3}");
        lines.push(format!("{hosts}: {share:.3} ({expected:.3})"));
    }
    Ok(lines.join("; "))
}

fn switch(rate: Rate, hosts: usize, port_bytes_max: usize) -> Ether {
    let config = Config::new(rate, Medium::Switch { port_bytes_max });
    Ether::new(&Config { host_queue_bytes_max: BACKLOG_BYTES, ..config }, hosts)
}

fn switch_forwards(_seed: u64) -> Result<String> {
    let rate = Rate::Hundred;
    let mut ether = switch(rate, 3, PORT_BYTES_MAX);
    for _ in 0..100 {
        ether.send(0, 0, frame(0, Some(1), FRAME_BYTES_MAX));
        ether.send(0, 1, frame(1, Some(0), FRAME_BYTES_MAX));
    }
    ether.advance(SECOND);
    let arrivals: Vec<Time> = std::iter::from_fn(|| ether.poll_delivery()).map(|delivery| delivery.at).collect();
    let alone = rate.bits(PREAMBLE_BITS) + rate.bytes(FRAME_BYTES_MAX);
    ensure!(arrivals[0] == 2 * alone, "the first frame arrives after {} ns", arrivals[0]);
    let last = arrivals.last().copied().unwrap_or_default();
    ensure!(arrivals.len() == 200 && last == 2 * alone + 99 * period(rate, FRAME_BYTES_MAX), "the last one: {last} ns");
    let longest = ether.counters().ports.iter().map(|port| port.port_queue_bytes).max();
    ensure!(longest == Some(FRAME_BYTES_MAX), "at equal rates one frame waits, not {longest:?} bytes");
    Ok(format!("{} us for each frame, in both directions at once", alone as f64 / 1e3))
}

/// Checks the loss when N hosts send k frames each at the same time. In each period N frames arrive at the buffer,
/// which has room for B, and one leaves it. So B + k - 1 frames are accepted, or all frames if there are fewer.
fn incast(_seed: u64) -> Result<String> {
    let mut lines = Vec::new();
    for (senders, frames, port_bytes_max) in [
        (2, 30, PORT_BYTES_MAX),
        (2, 60, PORT_BYTES_MAX),
        (32, 1, PORT_BYTES_MAX),
        (32, 20, PORT_BYTES_MAX),
        (32, 20, 10_000),
    ] {
        let mut ether = switch(Rate::Gigabit, senders + 1, port_bytes_max);
        for from in 0..senders {
            (0..frames).for_each(|_| ether.send(0, from, frame(from, Some(senders), FRAME_BYTES_MAX)));
        }
        ether.advance(SECOND);
        let port = ether.counters().ports[senders];
        let room = port_bytes_max / FRAME_BYTES_MAX;
        let accepted = (senders * frames).min(room + frames - 1);
        let name = format!("{senders} x {frames} frames, {port_bytes_max} bytes");
        let dropped = (senders * frames - accepted) as u64;
        ensure!(
            (port.received, port.port_dropped) == (accepted as u64, dropped),
            "{name}: {} received, {} dropped; expected are {accepted} and {dropped}",
            port.received,
            port.port_dropped
        );
        ensure!(dropped == 0 || port.port_queue_bytes == room * FRAME_BYTES_MAX, "{name}: the buffer is not filled");
        lines.push(format!("{name}: {dropped} dropped"));
    }
    Ok(lines.join("; "))
}

fn seeds(seed: u64) -> Result<String> {
    let run = |seed| {
        let ether = hub(Rate::Ten, 9, PROPAGATION_BITS, Contention::Backoff, seed);
        overload(ether, 8, 512, SECOND)
    };
    let (one, same, other) = (run(seed), run(seed), run(seed + 1));
    ensure!(one == same, "two runs with seed {seed} differ");
    ensure!(one != other, "seeds {seed} and {} have the same result", seed + 1);
    Ok(format!("{} collisions with seed {seed}", one.iter().map(|port| port.collisions).sum::<u64>()))
}

#[test]
fn the_model_agrees_with_theory() {
    let seed = std::env::var("ETHER_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    for (name, check) in CHECKS {
        match check(seed) {
            Ok(measured) => println!("{name}:\n  {}", measured.replace("; ", "\n  ")),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}
