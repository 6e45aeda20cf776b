//! Tests of pacing: single decisions, and whole transfers over a model of a network with a narrow port.
use super::path::{UNDER_WAY_BYTES_MAX, UNDER_WAY_BYTES_MIN};
use super::*;
use crate::prng::Prng;
use crate::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const PACKET_BYTES: u64 = 1460;
/// The buffer of a port.
const PORT_BYTES: u64 = 64 << 10;

fn host(number: u32) -> Tid {
    Tid::host_number(number)
}
fn at(nanoseconds: u64) -> Time {
    Duration::from_nanos(nanoseconds)
}
fn grants(pacer: &mut Pacer) -> Vec<(Tid, u64)> {
    std::iter::from_fn(|| pacer.poll_grant()).map(|grant| (grant.host, grant.up_to)).collect()
}

/// Begins a message of a host as far as the first limit allows.
fn begin(pacer: &mut Pacer, from: Tid, transfer: u32, bytes: usize) {
    pacer.handle_start(from, transfer, bytes);
    pacer.handle_bytes(from, transfer, bytes.min(FIRST_LIMIT_BYTES as usize));
}

#[test]
fn a_host_that_sends_alone_is_granted_more_than_it_has_announced() {
    let mut pacer = Pacer::new();
    begin(&mut pacer, host(2), 1, 10_000);
    pacer.handle_time(at(0));
    let granted = grants(&mut pacer);
    assert!(matches!(granted[..], [(from, up_to)] if from == host(2) && up_to > 30_000), "{granted:?}");
    // The next messages need no further grant until half of the lead is used.
    pacer.handle_bytes(host(2), 1, 9_000);
    begin(&mut pacer, host(2), 2, 5_000);
    pacer.handle_time(at(MILLISECOND));
    assert_eq!((grants(&mut pacer), pacer.next_wakeup()), (vec![], None));
}

#[test]
fn the_lead_goes_over_to_the_next_host_that_sends_alone() {
    let mut pacer = Pacer::new();
    begin(&mut pacer, host(2), 1, 10_000);
    pacer.handle_time(at(0));
    pacer.handle_bytes(host(2), 1, 9_000);
    grants(&mut pacer);
    begin(&mut pacer, host(3), 1, 10_000);
    pacer.handle_time(at(MILLISECOND));
    let granted = grants(&mut pacer);
    assert!(matches!(granted[..], [(_, less), (_, more)] if less < more && more > 30_000), "{granted:?}");
}

#[test]
fn the_message_that_is_nearest_to_its_end_is_granted_first_and_the_sum_is_bounded() {
    let mut pacer = Pacer::new();
    let sizes = [900_000, 800_000, 20_000, 700_000];
    for (number, bytes) in (2..).zip(sizes) {
        begin(&mut pacer, host(number), 1, bytes);
    }
    pacer.handle_time(at(0));
    let granted = grants(&mut pacer);
    assert_eq!(granted[0].0, host(4));
    assert!(granted[0].1 >= 20_000 && granted.len() == 2, "{granted:?}");
    assert_eq!(granted[1], (host(5), FIRST_LIMIT_BYTES + UNDER_WAY_BYTES_MIN - (20_000 - FIRST_LIMIT_BYTES)));
}

#[test]
fn a_long_message_is_not_starved_by_short_ones() {
    let mut pacer = Pacer::new();
    begin(&mut pacer, host(2), 0, 1 << 20);
    let mut finished = 0;
    // Two other hosts always have a short message, and the host with the long one sends what it is granted.
    for round in 1..2000 {
        for number in [3, 4] {
            begin(&mut pacer, host(number), round, 20_000);
        }
        pacer.handle_time(at(u64::from(round) * MILLISECOND));
        for (from, up_to) in grants(&mut pacer) {
            if from == host(2) {
                finished = up_to;
                pacer.handle_bytes(from, 0, up_to as usize);
            }
        }
        [3, 4].iter().for_each(|number| pacer.handle_bytes(host(*number), round, 20_000));
    }
    assert!(finished >= 1 << 20, "{finished}");
}

#[test]
fn a_host_that_does_not_send_what_it_was_granted_holds_up_nobody() {
    let mut pacer = Pacer::new();
    begin(&mut pacer, host(2), 1, 50_000);
    begin(&mut pacer, host(3), 1, 60_000);
    pacer.handle_time(at(0));
    assert!(grants(&mut pacer).iter().all(|(from, _)| *from == host(2)));
    let when = pacer.next_wakeup().expect("the other host waits");
    pacer.handle_time(when);
    assert!(grants(&mut pacer).iter().any(|(from, up_to)| *from == host(3) && *up_to > UNDER_WAY_BYTES_MIN));
}

#[test]
fn what_a_host_was_granted_goes_to_others_when_the_host_has_gone() {
    let mut pacer = Pacer::new();
    for number in 2..5 {
        begin(&mut pacer, host(number), 1, 500_000);
    }
    pacer.handle_time(at(0));
    assert!(grants(&mut pacer).iter().all(|(from, _)| *from == host(2)));
    pacer.host_gone(host(2));
    pacer.handle_time(at(1));
    assert!(grants(&mut pacer).iter().any(|(from, _)| *from == host(3)));
}

#[test]
fn without_pacing_there_are_no_grants() {
    let mut pacer = Pacer::new();
    pacer.set_pacing(Pacing::Off);
    begin(&mut pacer, host(2), 1, 50_000);
    begin(&mut pacer, host(3), 1, 50_000);
    pacer.handle_time(at(0));
    assert_eq!(grants(&mut pacer), []);
}

/// A network: all hosts send to one, through a port with this rate. The delay is that of each direction.
struct Wire {
    bytes_a_second: u64,
    delay: u64,
}

enum Event {
    /// A packet of a host arrives: a message begins, or bytes of it.
    Packet {
        from: u32,
        starts: Option<usize>,
        transfer: u32,
        bytes: u64,
    },
    Grant {
        to: u32,
        up_to: u64,
    },
    Wakeup,
    /// A host has another message to send.
    Queue {
        from: u32,
        bytes: usize,
    },
}

struct Sender {
    limit: SendLimit,
    /// The messages that wait, and the one that is being sent: its bytes and how many are left.
    queue: Vec<usize>,
    current: Option<(usize, usize)>,
    transfer: u32,
    /// Sends nothing after this number of bytes until the time.
    stops: Option<(u64, u64)>,
}

struct Model {
    wire: Wire,
    pacer: Pacer,
    senders: Vec<Sender>,
    events: BTreeMap<(u64, u64), Event>,
    last: u64,
    now: u64,
    wakeup: Option<Time>,
    /// When the port has sent everything that is in it.
    port_free: u64,
    longest_port_bytes: u64,
    arrived: u64,
    ended: u64,
}

impl Model {
    fn new(wire: Wire, senders: usize) -> Model {
        let sender = |_| Sender {
            limit: SendLimit::new(FIRST_LIMIT_BYTES),
            queue: Vec::new(),
            current: None,
            transfer: 0,
            stops: None,
        };
        Model {
            wire,
            pacer: Pacer::new(),
            senders: (0..senders).map(sender).collect(),
            events: BTreeMap::new(),
            last: 0,
            now: 0,
            wakeup: None,
            port_free: 0,
            longest_port_bytes: 0,
            arrived: 0,
            ended: 0,
        }
    }

    fn plan(&mut self, when: u64, event: Event) {
        self.last += 1;
        self.events.insert((when, self.last), event);
    }

    fn packet(&mut self, from: u32, starts: Option<usize>, transfer: u32, bytes: u64) {
        let here = self.now + self.wire.delay / 2;
        let begin = self.port_free.max(here);
        self.port_free = begin + (bytes + 60) * SECOND / self.wire.bytes_a_second;
        let queue_bytes = (self.port_free - here) * self.wire.bytes_a_second / SECOND;
        // The port buffers everything, but a full one is a loss for the pacer.
        if queue_bytes > PORT_BYTES {
            self.pacer.handle_loss(at(self.now), host(from + 2));
        }
        self.longest_port_bytes = self.longest_port_bytes.max(queue_bytes);
        self.plan(self.port_free + self.wire.delay / 2, Event::Packet { from, starts, transfer, bytes });
    }

    /// Lets a host send what it may.
    fn send(&mut self, from: u32) {
        loop {
            let sender = &mut self.senders[from as usize];
            if sender.stops.is_some_and(|(bytes, until)| sender.limit.sent >= bytes && self.now < until) {
                return;
            }
            let mut starts = None;
            if sender.current.is_none() {
                let Some(bytes) = sender.queue.pop() else { return };
                sender.transfer += 1;
                sender.current = Some((bytes, bytes));
                starts = Some(bytes);
            }
            let Some((bytes, left)) = sender.current else { return };
            let count = sender.limit.take(bytes, left.min(PACKET_BYTES as usize));
            if count == 0 && starts.is_none() {
                return;
            }
            sender.current = Some((bytes, left - count)).filter(|_| count < left);
            let transfer = sender.transfer;
            self.packet(from, starts, transfer, count as u64);
        }
    }

    fn run(&mut self) {
        while let Some(((when, _), event)) = self.events.pop_first() {
            self.now = when;
            match event {
                Event::Packet { from, starts, transfer, bytes } => {
                    if let Some(whole) = starts {
                        self.pacer.handle_start(host(from + 2), transfer, whole);
                    }
                    self.pacer.handle_bytes(host(from + 2), transfer, bytes as usize);
                    self.arrived += bytes;
                    self.ended = self.now;
                }
                Event::Grant { to, up_to } => {
                    self.senders[to as usize].limit.set(up_to);
                    self.send(to);
                }
                Event::Queue { from, bytes } => {
                    self.senders[from as usize].queue.insert(0, bytes);
                    self.send(from);
                }
                Event::Wakeup => (0..self.senders.len() as u32).for_each(|from| self.send(from)),
            }
            self.pacer.handle_time(at(self.now));
            for (to, up_to) in grants(&mut self.pacer) {
                self.plan(self.now + self.wire.delay, Event::Grant { to: to.0 / host(1).0 - 2, up_to });
            }
            let wakeup = self.pacer.next_wakeup();
            if let Some(wakeup) = wakeup.filter(|_| wakeup != std::mem::replace(&mut self.wakeup, wakeup)) {
                self.plan((wakeup.as_nanos() as u64).max(self.now + MICROSECOND), Event::Wakeup);
            }
        }
    }
}

#[test]
fn pacing_on_loss_begins_with_a_loss_and_ends_when_all_is_calm() {
    let mut pacer = Pacer::new();
    pacer.set_pacing(Pacing::OnLoss);
    for number in 2..4 {
        pacer.handle_start(host(number), 1, 1 << 20);
        pacer.handle_bytes(host(number), 1, 100_000);
    }
    assert_eq!(pacer.hosts_to_check(at(2 * MILLISECOND)).len(), 2);
    pacer.handle_time(at(2 * MILLISECOND));
    assert_eq!((grants(&mut pacer), pacer.next_wakeup()), (vec![], None));
    pacer.handle_loss(at(3 * MILLISECOND), host(2));
    pacer.handle_loss(at(3 * MILLISECOND), host(3));
    pacer.handle_bytes(host(2), 1, 100_000);
    pacer.handle_time(at(4 * MILLISECOND));
    let limits = grants(&mut pacer);
    assert!(limits.len() == 2 && limits.iter().all(|(_, up_to)| (100_000..500_000).contains(up_to)), "{limits:?}");
    // A host that sends for the first time has no limit before.
    pacer.handle_start(host(4), 1, 1 << 20);
    pacer.handle_time(at(5 * MILLISECOND));
    assert!(grants(&mut pacer).iter().any(|(from, up_to)| *from == host(4) && *up_to < u64::MAX));
    for number in 2..5 {
        pacer.handle_bytes(host(number), 1, 1 << 20);
    }
    pacer.handle_time(at(6 * MILLISECOND));
    grants(&mut pacer);
    pacer.handle_start(host(2), 2, 1 << 20);
    pacer.handle_time(at(11 * SECOND));
    assert_eq!(grants(&mut pacer), [2, 3, 4].map(|number| (host(number), u64::MAX)));
}

#[test]
fn single_losses_do_not_begin_pacing() {
    let mut pacer = Pacer::new();
    pacer.set_pacing(Pacing::OnLoss);
    for number in 2..18 {
        pacer.handle_start(host(number), 1, 1 << 20);
        pacer.handle_bytes(host(number), 1, 1000);
    }
    let begins = |pacer: &mut Pacer, ms: u64, number: u32| {
        pacer.handle_loss(at(ms * MILLISECOND), host(number));
        pacer.handle_time(at(ms * MILLISECOND));
        !grants(pacer).is_empty()
    };
    // Host after host loses packets, three of the sixteen within the time of a loss of many.
    assert!((0..16).all(|number| !begins(&mut pacer, 10 + 40 * u64::from(number), 2 + number)));
    // One host loses many packets.
    assert!((0..50).all(|ms| !begins(&mut pacer, 1000 + ms, 2)));
    assert!((3..5).all(|number| !begins(&mut pacer, 1050, number)));
    assert!(begins(&mut pacer, 1051, 5));
}

#[test]
fn late_losses_of_the_burst_that_was_not_paced_do_not_lower_the_target() {
    let mut pacer = Pacer::new();
    pacer.set_pacing(Pacing::OnLoss);
    for number in 2..6 {
        pacer.handle_start(host(number), 1, 1 << 20);
        pacer.handle_bytes(host(number), 1, 200_000);
    }
    pacer.handle_time(at(0));
    (2..6).for_each(|number| pacer.handle_bytes(host(number), 1, 100_000));
    pacer.handle_time(at(20 * MILLISECOND));
    (2..4).for_each(|number| pacer.handle_loss(at(20 * MILLISECOND), host(number)));
    let target = pacer.path.target_bytes();
    (1..5).for_each(|turn| pacer.handle_loss(at((20 + 100 * turn) * MILLISECOND), host(4)));
    assert_eq!(pacer.path.target_bytes(), target);
    pacer.handle_loss(at(521 * MILLISECOND), host(4));
    assert!(pacer.path.target_bytes() < target);
}

#[test]
fn many_senders_fill_the_wire_and_no_port_of_64_kib() {
    for (megabits, delay) in [(10, 300), (100, 100), (1000, 50), (1000, 10), (10_000, 10)] {
        for senders in [2, 8, 31] {
            let wire = Wire { bytes_a_second: megabits * 125_000, delay: delay * MICROSECOND };
            let mut model = Model::new(wire, senders);
            let bytes = if megabits < 1000 { 100_000 } else { 300_000 };
            for round in 0..3 {
                (0..senders as u32).for_each(|from| model.plan(MICROSECOND * round, Event::Queue { from, bytes }));
            }
            model.run();
            let all = (3 * senders * bytes) as u64;
            assert_eq!(model.arrived, all);
            let share = all as f64 / (model.ended as f64 / 1e9 * (megabits * 125_000) as f64);
            let what =
                format!("{senders} senders at {megabits} Mbit/s: {share:.3}, {} bytes", model.longest_port_bytes);
            println!("{what}");
            assert!(share > 0.88, "{what}");
            // At higher rates, a first burst overflows such a port.
            assert!(megabits > 100 || model.longest_port_bytes < 5 * PORT_BYTES / 4, "{what}");
        }
    }
}

#[test]
fn every_message_arrives_whatever_the_hosts_do() {
    for seed in 1..=200 {
        let mut prng = Prng(seed);
        let senders = 1 + prng.below(12) as usize;
        let (rate, delay) = (1 << (14 + prng.below(16)), 1 << (8 + prng.below(14)));
        let mut model = Model::new(Wire { bytes_a_second: rate, delay }, senders);
        let mut all = 0;
        for _ in 0..prng.below(60) {
            let (from, magnitude) = (prng.below(senders as u64) as u32, prng.below(19));
            let (bytes, when) = (prng.below(1 << magnitude) as usize, prng.below(SECOND));
            model.plan(when, Event::Queue { from, bytes });
            all += bytes as u64;
        }
        for from in 0..senders {
            if prng.below(4) == 0 {
                let until = prng.below(3 * SECOND);
                model.senders[from].stops = Some((prng.below(100_000), until));
                model.plan(until, Event::Wakeup);
            }
        }
        model.run();
        assert_eq!(model.arrived, all, "seed {seed}");
        assert!(model.senders.iter().all(|sender| sender.current.is_none() && sender.queue.is_empty()), "seed {seed}");
        assert_eq!(model.pacer.next_wakeup(), None, "seed {seed}");
    }
}

#[test]
fn the_target_follows_the_rate_and_falls_after_a_loss() {
    let mut path = super::path::Path::default();
    assert_eq!(path.target_bytes(), UNDER_WAY_BYTES_MIN);
    // 100 MB/s with grants of 100 us.
    let mut now = 0;
    let mut pass = |path: &mut super::path::Path, steps: u64| {
        for _ in 0..steps {
            now += MILLISECOND;
            path.grant_took(Duration::from_micros(100), 0);
            path.handle_time(at(now), true);
            path.count(100_000);
        }
        at(now)
    };
    let end = pass(&mut path, 100);
    assert!((550_000..650_000).contains(&path.target_bytes()), "{}", path.target_bytes());
    // Several lost packets are one loss.
    (0..5).for_each(|_| path.handle_loss(end));
    assert!((380_000..450_000).contains(&path.target_bytes()), "{}", path.target_bytes());
    pass(&mut path, 4000);
    assert!((550_000..650_000).contains(&path.target_bytes()), "{}", path.target_bytes());
    // However many packets are lost, the wire is used, and however fast it is, little is under way.
    (0..100).for_each(|loss| path.handle_loss(end + Duration::from_secs(10 + loss)));
    assert_eq!(path.target_bytes(), UNDER_WAY_BYTES_MIN);
    let mut path = super::path::Path::default();
    (0..100).for_each(|step| {
        path.handle_time(at(step * MILLISECOND), true);
        path.count(10_000_000);
    });
    assert_eq!(path.target_bytes(), UNDER_WAY_BYTES_MAX);
}

#[test]
fn bytes_that_waited_while_the_daemon_had_no_processor_raise_the_rate_little() {
    let mut path = super::path::Path::default();
    for step in 0..200 {
        path.handle_time(at(step * MILLISECOND), true);
        path.count(12_500);
    }
    let before = path.target_bytes();
    path.handle_time(at(200 * MILLISECOND), true);
    path.count(62_500);
    path.handle_time(at(200 * MILLISECOND + 100 * MICROSECOND), true);
    assert!(path.target_bytes() < 2 * before, "{before}, then {}", path.target_bytes());
}
