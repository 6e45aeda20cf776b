//! Bodies in datagrams: one host broadcasts, three hosts hear, and the test is the network between them.
use super::tests::{Host, Task, join, pattern};
use super::*;
use pvm_core::flows::multicast::datagram::HEAD_BYTES;
use pvm_core::flows::{LIST, LISTED};
use pvm_fmp::Sent;
use pvm_net::TAG_BYTES;

const LISTENERS: usize = 3;
/// The part of a body in a datagram of this network, in bytes.
const PART_BYTES: usize = 1000;
const BROADCAST: u32 = 4;
/// The number of turns after which nothing comes any more unless time passes.
const QUIET_TURNS: u32 = 100;

/// What the network does to a datagram on its way to one host.
#[derive(Debug)]
enum Fate {
    Arrives,
    Lost,
    Twice,
    /// The byte at this position, or at the last one, is changed.
    Changed(usize),
    /// The datagram ends at this position, or before its last byte.
    Truncated(usize),
}

struct World {
    hosts: Vec<Host>,
    sender: Task,
    receivers: Vec<Task>,
    /// The number of datagrams that were sent.
    sent: usize,
}

impl World {
    fn new() -> World {
        let mut hosts: Vec<Host> =
            (1..=LISTENERS as u32 + 1).map(|number| Host::new(Tid::host_number(number).0)).collect();
        let (own, others) = hosts.split_first_mut().unwrap();
        own.context.datagram_bytes = Some(PART_BYTES + HEAD_BYTES + TAG_BYTES);
        for (at, other) in others.iter_mut().enumerate() {
            // Broadcasts are the fallback of nobody: each host could fetch the body on its data link.
            join(own, other);
            assert_eq!(own.route.is_broadcaster(), at + 1 == LISTENERS);
        }
        let receivers = others.iter_mut().map(|host| host.task(1)).collect();
        World { sender: own.task(1), receivers, hosts, sent: 0 }
    }

    /// Steps until each receiver has this number of messages.
    fn run(&mut self, messages: usize, mut fate: impl FnMut(usize, usize) -> Fate) {
        let (mut now, mut quiet_turns) = (Duration::ZERO, 0);
        while self.receivers.iter().any(|receiver| receiver.taken.0.len() < messages) {
            assert!(now < Duration::from_secs(20), "a message is missing");
            self.hosts.iter_mut().for_each(|host| host.route.clock.set = Some(now));
            quiet_turns += 1;
            if quiet_turns > QUIET_TURNS {
                now += Duration::from_millis(1);
            }
            self.hosts.iter_mut().for_each(|host| {
                host.turn();
            });
            self.receivers.iter_mut().for_each(Task::take);
            for datagram in self.hosts[0].context.sent.split_off(0) {
                quiet_turns = 0;
                for host in 1..=LISTENERS {
                    self.arrive(host, datagram.clone(), &fate(self.sent, host));
                }
                self.sent += 1;
            }
        }
    }

    fn arrive(&mut self, host: usize, mut datagram: Vec<u8>, fate: &Fate) {
        let Host { route, context, .. } = &mut self.hosts[host];
        match fate {
            Fate::Lost => return,
            Fate::Arrives => {}
            Fate::Twice => drop(route.on_datagram(&mut datagram.clone(), context)),
            Fate::Changed(at) => {
                let at = (*at).min(datagram.len() - 1);
                datagram[at] ^= 0x10;
            }
            Fate::Truncated(at) => datagram.truncate((*at).min(datagram.len() - 1)),
        }
        let result = route.on_datagram(&mut datagram, context);
        let is_spoilt = matches!(fate, Fate::Changed(_) | Fate::Truncated(_));
        assert!(result.is_err() || !is_spoilt, "{fate:?} is not noticed");
    }

    fn multicast(&mut self, number: u32, body: &[u8]) {
        let list: Vec<u8> = self.receivers.iter().flat_map(|receiver| receiver.tid.0.to_ne_bytes()).collect();
        let (own, endpoint) = (self.hosts[0].tid.0, &mut self.sender.endpoint);
        for (meta, bytes) in [([0, BROADCAST, 0, 0, 0, LIST], &list[..]), ([number, 1, 2, 3, 4, LISTED], body)] {
            assert!(matches!(endpoint.send_bytes(own, meta, bytes), Ok(Sent::Done)));
        }
    }

    /// Checks that each receiver got each of these bodies once and in order.
    fn check(&self, bodies: &[Vec<u8>]) {
        for receiver in &self.receivers {
            let got = receiver.taken.0.iter().map(|(_, meta, body)| (meta[0] as usize, body));
            assert!(got.eq(bodies.iter().enumerate()));
        }
    }
}

fn bodies() -> Vec<Vec<u8>> {
    [20_000, 4096, 500_000, 100_001].iter().map(|bytes| pattern(*bytes, *bytes as u32)).collect()
}

/// Returns the number of datagrams that the bodies need on a network where each of these arrives or has this fate.
fn datagrams(fate: impl FnMut(usize, usize) -> Fate) -> usize {
    let (mut world, bodies) = (World::new(), bodies());
    for (number, body) in bodies.iter().enumerate() {
        world.multicast(number as u32, body);
    }
    world.run(bodies.len(), fate);
    world.check(&bodies);
    world.sent
}

#[test]
fn each_part_of_a_body_is_broadcast_once() {
    let parts: usize = bodies().iter().map(|body| body.len().div_ceil(PART_BYTES)).sum();
    assert_eq!(datagrams(|_, _| Fate::Arrives), parts);
    assert_eq!(datagrams(|_, _| Fate::Twice), parts, "duplicates change nothing");
}

#[test]
fn lost_changed_and_truncated_parts_are_sent_again() {
    let parts: usize = bodies().iter().map(|body| body.len().div_ceil(PART_BYTES)).sum();
    let every = |n: usize, fate: fn(usize) -> Fate| {
        move |sent: usize, host: usize| if (sent + host) % n == 0 { fate(sent) } else { Fate::Arrives }
    };
    for fate in [every(7, |_| Fate::Lost), every(7, Fate::Changed), every(7, Fate::Truncated)] {
        let sent = datagrams(fate);
        assert!(sent > parts && sent < 2 * parts, "{sent} datagrams for {parts} parts");
    }
}

#[test]
fn a_host_that_hears_nothing_fetches() {
    let sent = datagrams(|_, host| if host == 2 { Fate::Lost } else { Fate::Arrives });
    assert!(sent > 0);
}
