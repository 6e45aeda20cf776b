//! A hub, or one cable for all hosts (IEEE 802.3, half duplex): carrier sense, collisions, and truncated binary
//! exponential backoff.
//!
//! All hosts have the same distance to one another: what one sends, all others hear after the same delay. A host defers
//! to the carrier and to the gap between frames. In the last third of the gap it no longer looks at the carrier. If it
//! hears another while it sends, it completes its preamble, sends the jam and waits a random number of slots.

use super::schedule::Schedule;
use super::wire::{Delivery, Frame, GAP_BITS, PREAMBLE_BITS, PortCounters, Queue, Rate, Time};
use std::collections::VecDeque;

/// What a host sends after it has noticed a collision.
pub const JAM_BITS: u64 = 32;
/// A host gives up a frame after this number of collisions.
pub const ATTEMPTS_MAX: u32 = 16;
/// The range of the backoff doubles at most this number of times.
pub const BACKOFF_LIMIT: u32 = 10;
/// The part of the gap in which a carrier makes a host wait for another gap.
const WATCHFUL_GAP_BITS: u64 = GAP_BITS * 2 / 3;

/// Returns the slot time. At 1 Gbit/s it is longer, and short frames are extended to it, since signals travel no faster
/// than at lower rates.
pub fn slot(rate: Rate) -> Time {
    match rate {
        Rate::Ten | Rate::Hundred => rate.bits(512),
        Rate::Gigabit => rate.bits(4096),
    }
}

/// How hosts that want to send at the same time share the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contention {
    /// Binary exponential backoff.
    Backoff,
    /// In each slot after the carrier, each waiting host sends with probability 1/Q, and never gives up: the
    /// assumption of Metcalfe and Boggs, under which the efficiency is known exactly.
    Ideal(usize),
}

/// Events. If two have the same time, they happen in this order: a host that begins to send when a signal arrives has
/// not heard the signal yet.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start { host: usize, plan: u64 },
    End { host: usize, plan: u64 },
    SignalBegins { from: usize },
    SignalEnds { from: usize, is_frame: bool },
}

impl Event {
    fn rank(&self) -> u8 {
        match self {
            Event::Start { .. } => 0,
            Event::End { .. } => 1,
            Event::SignalBegins { .. } => 2,
            Event::SignalEnds { .. } => 3,
        }
    }
}

/// What a host does.
#[derive(Debug, PartialEq, Eq)]
enum Activity {
    /// It has nothing to send, or hears others.
    Waits,
    /// It begins to send at this time, unless it hears a carrier before.
    Plans { start: Time },
    /// It has been sending since this time.
    Sends { since: Time },
    /// It has noticed a collision and sends the jam.
    Jams,
}

#[derive(Debug)]
struct Host {
    queue: Queue,
    activity: Activity,
    /// The number of the last plan; events of older plans are ignored.
    plan: u64,
    /// The collisions of the first frame in the queue.
    attempts: u32,
    /// The end of the backoff.
    backoff_end: Time,
    /// The number of signals of others that arrive now.
    signals: usize,
    /// When the host last heard others or itself.
    idle_since: Time,
    /// The frames of this host whose last bits have not arrived at the others yet.
    sent: VecDeque<Frame>,
    counters: PortCounters,
}

/// The hub with its hosts.
#[derive(Debug)]
pub struct Hub {
    rate: Rate,
    /// The time from any host to any other.
    propagation: Time,
    contention: Contention,
    random: fastrand::Rng,
    hosts: Vec<Host>,
    events: Schedule<Event>,
    deliveries: VecDeque<Delivery>,
}

impl Hub {
    /// Makes a hub. The propagation must leave time to notice every collision within a slot.
    pub fn new(
        rate: Rate,
        hosts: usize,
        propagation: Time,
        contention: Contention,
        queue_bytes_max: usize,
        seed: u64,
    ) -> Hub {
        assert!(propagation > 0 && 2 * propagation + rate.bits(JAM_BITS) <= slot(rate), "no collision is late");
        let host = |_| Host {
            queue: Queue::new(queue_bytes_max),
            activity: Activity::Waits,
            plan: 0,
            attempts: 0,
            backoff_end: 0,
            signals: 0,
            idle_since: 0,
            sent: VecDeque::new(),
            counters: PortCounters::default(),
        };
        Hub {
            rate,
            propagation,
            contention,
            random: fastrand::Rng::with_seed(seed),
            hosts: (0..hosts).map(host).collect(),
            events: Schedule::default(),
            deliveries: VecDeque::new(),
        }
    }

    /// Adds a frame to the queue of a host.
    pub fn send(&mut self, now: Time, from: usize, frame: Frame) {
        self.hosts[from].queue.push(frame);
        if self.hosts[from].activity == Activity::Waits {
            self.plan_start(from, now);
        }
    }

    /// Returns the time of the next event.
    pub fn next_event(&self) -> Option<Time> {
        self.events.next()
    }

    /// Executes all events up to this time.
    pub fn advance(&mut self, now: Time) {
        while let Some((at, event)) = self.events.take_due(now) {
            self.execute(at, event);
        }
    }

    /// Returns the next frame that has arrived.
    pub fn poll_delivery(&mut self) -> Option<Delivery> {
        self.deliveries.pop_front()
    }

    /// Returns the counters of each host.
    pub fn counters(&self) -> Vec<PortCounters> {
        let counters = |host: &Host| PortCounters {
            host_dropped: host.queue.dropped(),
            host_queue_bytes: host.queue.longest_bytes(),
            ..host.counters
        };
        self.hosts.iter().map(counters).collect()
    }

    fn add(&mut self, at: Time, event: Event) {
        self.events.add(at, event.rank(), event);
    }

    fn execute(&mut self, now: Time, event: Event) {
        match event {
            Event::Start { host, plan } if plan == self.hosts[host].plan => self.start(host, now),
            Event::End { host, plan } if plan == self.hosts[host].plan => self.end(host, now),
            Event::Start { .. } | Event::End { .. } => {}
            Event::SignalBegins { from } => self.hear(from, now),
            Event::SignalEnds { from, is_frame } => {
                for host in (0..self.hosts.len()).filter(|host| *host != from) {
                    self.hosts[host].signals -= 1;
                    self.become_idle(host, now);
                }
                if is_frame {
                    self.deliver(from, now);
                }
            }
        }
    }

    /// Plans when a host begins to send, if it has a frame and hears nothing.
    fn plan_start(&mut self, number: usize, now: Time) {
        let gap = self.rate.bits(GAP_BITS);
        let host = &mut self.hosts[number];
        if host.queue.first().is_none() || host.signals > 0 {
            return;
        }
        let earliest = now.max(host.idle_since + gap);
        let start = match self.contention {
            Contention::Backoff => earliest.max(host.backoff_end),
            Contention::Ideal(hosts) => {
                let mut slots = 0;
                while self.random.usize(..hosts) != 0 {
                    slots += 1;
                }
                earliest + slots * slot(self.rate)
            }
        };
        host.activity = Activity::Plans { start };
        host.plan += 1;
        let plan = host.plan;
        self.add(start, Event::Start { host: number, plan });
    }

    fn start(&mut self, number: usize, now: Time) {
        let frame = self.hosts[number].queue.first().expect("a host that plans has a frame");
        let content = self.rate.bytes(frame.stored_bytes());
        let shortest = if self.rate == Rate::Gigabit { slot(self.rate) } else { 0 };
        let end = now + self.rate.bits(PREAMBLE_BITS) + content.max(shortest);
        let host = &mut self.hosts[number];
        host.activity = Activity::Sends { since: now };
        let (plan, hears_others) = (host.plan, host.signals > 0);
        self.add(end, Event::End { host: number, plan });
        self.add(now + self.propagation, Event::SignalBegins { from: number });
        if hears_others {
            self.jam(number, now, now);
        }
    }

    /// Lets all other hosts hear the first bit that the host `from` sends.
    fn hear(&mut self, from: usize, now: Time) {
        let watchful = self.rate.bits(WATCHFUL_GAP_BITS);
        let gap = self.rate.bits(GAP_BITS);
        for number in (0..self.hosts.len()).filter(|number| *number != from) {
            let host = &mut self.hosts[number];
            host.signals += 1;
            match host.activity {
                Activity::Sends { since } => self.jam(number, since, now),
                Activity::Plans { start } => {
                    let no_longer_looks = start == host.idle_since + gap && now >= host.idle_since + watchful;
                    if !no_longer_looks {
                        host.plan += 1;
                        host.activity = Activity::Waits;
                    }
                }
                Activity::Waits | Activity::Jams => {}
            }
        }
    }

    /// Makes a host break off the frame that it has been sending since the time `since`, and send a jam.
    fn jam(&mut self, number: usize, since: Time, now: Time) {
        let host = &mut self.hosts[number];
        host.activity = Activity::Jams;
        host.attempts += 1;
        host.counters.collisions += 1;
        host.plan += 1;
        let plan = host.plan;
        let end = now.max(since + self.rate.bits(PREAMBLE_BITS)) + self.rate.bits(JAM_BITS);
        self.add(end, Event::End { host: number, plan });
    }

    fn end(&mut self, number: usize, now: Time) {
        let is_frame = self.hosts[number].activity != Activity::Jams;
        if is_frame {
            let host = &mut self.hosts[number];
            let frame = host.queue.pop().expect("the frame on the wire is in the queue");
            host.counters.sent += 1;
            host.sent.push_back(frame);
            host.attempts = 0;
        } else {
            self.back_off(number, now);
        }
        self.hosts[number].activity = Activity::Waits;
        self.add(now + self.propagation, Event::SignalEnds { from: number, is_frame });
        // In ideal contention, slots begin at all hosts at the same time: so the sender, too, counts slots from the
        // time at which the others hear the end of its signal.
        let ideal_delay = if self.contention == Contention::Backoff { 0 } else { self.propagation };
        self.become_idle(number, now + ideal_delay);
    }

    fn back_off(&mut self, number: usize, now: Time) {
        let host = &mut self.hosts[number];
        if self.contention != Contention::Backoff {
            return;
        }
        if host.attempts == ATTEMPTS_MAX {
            host.queue.pop();
            host.counters.given_up += 1;
            host.attempts = 0;
            return;
        }
        let slots = self.random.u64(..1 << host.attempts.min(BACKOFF_LIMIT));
        host.backoff_end = now + slots * slot(self.rate);
    }

    /// Notes that a host hears nothing from now on, unless it still hears others or sends.
    fn become_idle(&mut self, number: usize, now: Time) {
        let host = &mut self.hosts[number];
        if host.signals > 0 || matches!(host.activity, Activity::Sends { .. } | Activity::Jams) {
            return;
        }
        host.idle_since = now;
        if host.activity == Activity::Waits {
            self.plan_start(number, now);
        }
    }

    fn deliver(&mut self, from: usize, now: Time) {
        let frame = self.hosts[from].sent.pop_front().expect("each frame that ends was sent");
        let all = (0..self.hosts.len()).filter(|to| *to != from);
        for to in all.filter(|to| frame.to.is_none_or(|only| only == *to)) {
            let counters = &mut self.hosts[to].counters;
            counters.received += 1;
            counters.received_bytes += frame.stored_bytes() as u64;
            self.deliveries.push_back(Delivery { at: now, to, frame: frame.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hosts in a test with many collisions.
    const HOSTS: usize = 500;

    fn frame() -> Frame {
        Frame { to: None, bytes: vec![0; 1514].into() }
    }

    #[test]
    fn a_host_gives_up_a_frame_after_sixteen_collisions() {
        let mut hub = Hub::new(Rate::Ten, HOSTS, Rate::Ten.bits(50), Contention::Backoff, 2000, 1);
        (0..HOSTS).for_each(|from| hub.send(0, from, Frame { to: Some(0), ..frame() }));
        hub.advance(Time::MAX);
        let counters = hub.counters();
        for counters in &counters {
            assert!((counters.sent, counters.given_up) == (1, 0) || (counters.sent, counters.given_up) == (0, 1));
            assert!(counters.collisions <= ATTEMPTS_MAX.into());
            assert_eq!(counters.given_up == 1, counters.collisions == u64::from(ATTEMPTS_MAX));
        }
        let given_up = counters.iter().filter(|counters| counters.given_up == 1).count();
        assert!(given_up > 0 && given_up < HOSTS, "{given_up}");
    }

    #[test]
    fn a_host_that_hears_a_carrier_waits_for_its_end() {
        let rate = Rate::Hundred;
        let mut hub = Hub::new(rate, 3, rate.bits(50), Contention::Backoff, 10_000, 1);
        hub.send(0, 0, frame());
        // The first frame begins after the gap.
        let heard = rate.bits(GAP_BITS + 50);
        hub.advance(heard);
        hub.send(heard, 1, frame());
        hub.advance(Time::MAX);
        let arrivals: Vec<Time> = std::iter::from_fn(|| hub.poll_delivery()).map(|delivery| delivery.at).collect();
        let period = rate.bits(GAP_BITS + PREAMBLE_BITS + 50) + rate.bytes(1518);
        assert_eq!(arrivals, [period, period, 2 * period, 2 * period]);
        assert_eq!(hub.counters().iter().map(|counters| counters.collisions).sum::<u64>(), 0);
    }

    #[test]
    fn a_host_that_begins_before_the_signal_arrives_collides() {
        let rate = Rate::Ten;
        let mut hub = Hub::new(rate, 3, rate.bits(50), Contention::Backoff, 10_000, 1);
        let start = rate.bits(1000);
        hub.send(start, 0, frame());
        hub.advance(start);
        hub.send(start + rate.bits(49), 1, frame());
        hub.advance(start + rate.bits(300));
        let collisions: Vec<u64> = hub.counters().iter().map(|counters| counters.collisions).collect();
        assert_eq!(collisions[..2], [1, 1]);
        hub.advance(Time::MAX);
        assert_eq!(hub.counters().iter().map(|counters| counters.sent).collect::<Vec<_>>(), [1, 1, 0]);
    }
}
