//! A task with several peers that send long messages to it.
use super::*;
use crate::direct::Body;
use crate::direct::link::DirectLink;
use crate::direct::link::incoming::ReadOutcome;
use crate::direct::send_queue::{QueuedBody, QueuedMessage};
use crate::envelope::LinkMessage;
use pvm_core::flows::pacing::FIRST_LIMIT_BYTES;
use pvm_core::proto::LinkCause;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

const OWN: Tid = Tid(0x40001);
const PEERS: u32 = 6;
/// Longer than what a socket holds, and of several frames.
const BYTES: usize = 400_000;

fn peer(number: u32) -> Tid {
    Tid(0x80001 + number)
}

/// The task, and its peers' sides of the links.
struct Scene {
    task: DirectLinks,
    peers: Vec<DirectLink>,
}

impl Scene {
    /// Returns a scene in which all links can be used in both directions.
    fn new(pacing: Pacing, overflows: bool) -> Scene {
        let mut scene = Scene { task: DirectLinks::with_limit(PEERS as usize), peers: Vec::new() };
        for number in 0..PEERS {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            let direct =
                Direct { peer: peer(number), calls: true, secret: None, pacing, overflows, cause: LinkCause::Program };
            let granted = scene.task.pacing.add(&direct, scene.task.links.is_empty());
            scene.task.links.push(DirectLink::new(&direct, near, granted).unwrap());
            let direct = Direct { peer: OWN, calls: false, ..direct };
            scene.peers.push(DirectLink::new(&direct, far, u64::MAX).unwrap());
        }
        while !scene.peers.iter().chain(&scene.task.links).all(|link| link.lane.may_switch()) {
            scene.task.poll_links();
            scene.peers.iter_mut().for_each(read);
        }
        scene.peers.iter_mut().chain(&mut scene.task.links).for_each(|link| drop(link.on_route_switch()));
        scene
    }

    fn send(&mut self, number: u32, tag: u32, bytes: usize) {
        let (link, meta) = (&mut self.peers[number as usize], [0, tag, 0, 0, 0, 0]);
        let data = vec![(number + tag) as u8; bytes];
        let mut body = QueuedBody::reserve(Body::Bytes(&data), &mut link.queue.pool).unwrap();
        body.fill(Body::Bytes(&data));
        let written = link.queue.all_written() && link.write(meta, Body::Bytes(&data));
        link.enqueue(QueuedMessage { meta, body, length: bytes }, written);
    }

    /// Returns the messages that have arrived: the numbers of their senders, and their tags.
    fn arrived(&mut self) -> Vec<(u32, u32)> {
        self.task.poll_links();
        let arrived = self.task.arrived.drain(..).map(|message| {
            let (number, tag) = (message.peer.0 - peer(0).0, message.meta[1]);
            assert!(message.body.iter().all(|byte| *byte == (number + tag) as u8));
            (number, tag)
        });
        arrived.collect()
    }

    /// Lets these peers and the task work until that many messages have arrived. Returns these.
    fn run(&mut self, peers: std::ops::Range<usize>, count: usize) -> Vec<(u32, u32)> {
        let (mut all, end) = (Vec::new(), Instant::now() + Duration::from_secs(20));
        while all.len() < count {
            assert!(Instant::now() < end, "{all:?}");
            self.peers[peers.clone()].iter_mut().for_each(read);
            all.extend(self.arrived());
        }
        all
    }
}

/// Reads what has arrived at a peer, and sends what it may.
fn read(link: &mut DirectLink) {
    link.read(&mut Vec::<LinkMessage>::new(), None, &mut ReadOutcome::default()).unwrap();
    link.flush();
}

#[test]
fn senders_wait_for_grants_from_the_first_message_on_and_all_messages_arrive_in_order() {
    for (pacing, overflows) in [(Pacing::Always, false), (Pacing::OnLoss, true)] {
        let mut scene = Scene::new(pacing, overflows);
        for (number, tag) in (0..3).flat_map(|tag| (0..PEERS).map(move |number| (number, tag))) {
            scene.send(number, tag, BYTES);
        }
        // All have announced their messages, and no more than their first packets are under way.
        for link in &scene.peers {
            assert!(link.is_held() && link.progress() <= FIRST_LIMIT_BYTES + 100, "{} bytes", link.progress());
        }
        let all = scene.run(0..PEERS as usize, 3 * PEERS as usize);
        for number in 0..PEERS {
            let tags = all.iter().filter(|(from, _)| *from == number).map(|(_, tag)| *tag);
            assert_eq!(tags.collect::<Vec<_>>(), [0, 1, 2]);
        }
        assert!(scene.task.pacing.pacer.is_idle());
    }
}

#[test]
fn nobody_waits_while_no_packets_are_lost_or_with_pacing_off() {
    for (pacing, overflows) in [(Pacing::OnLoss, false), (Pacing::Off, false), (Pacing::Off, true)] {
        let mut scene = Scene::new(pacing, overflows);
        (0..PEERS).for_each(|number| scene.send(number, 0, BYTES));
        scene.run(0..PEERS as usize, PEERS as usize);
        assert!(scene.peers.iter().all(|link| !link.is_held()));
        assert!(scene.task.links.iter().all(|link| link.granted == u64::MAX));
    }
}

#[test]
fn a_peer_that_does_not_send_what_it_may_holds_up_no_other() {
    let mut scene = Scene::new(Pacing::Always, false);
    (0..PEERS).for_each(|number| scene.send(number, 0, BYTES));
    // The first one computes: it does not read its grants.
    let all = scene.run(1..PEERS as usize, PEERS as usize - 1);
    assert!(all.iter().all(|(number, _)| *number != 0));
    assert!(!scene.task.pacing.pacer.is_idle());
    assert_eq!(scene.run(0..1, 1), [(0, 0)]);
}

#[test]
fn a_peer_whose_link_ends_in_the_middle_of_a_message_is_forgotten() {
    let mut scene = Scene::new(Pacing::Always, false);
    (0..PEERS).for_each(|number| scene.send(number, 0, BYTES));
    scene.arrived();
    drop(scene.peers.remove(0));
    scene.run(0..PEERS as usize - 1, PEERS as usize - 1);
    assert!(scene.task.pacing.pacer.is_idle());
    assert!(scene.task.find(peer(0)).is_none_or(|link| link.lane.is_read_closed()));
    // A task without links has nothing to wake up for.
    (0..PEERS).for_each(|number| scene.task.pacing.remove(peer(number)));
    scene.task.links.clear();
    assert_eq!(scene.task.pause(), None);
}

#[test]
fn the_task_wakes_when_a_grant_is_overdue() {
    let mut scene = Scene::new(Pacing::Always, false);
    assert_eq!(scene.task.pause(), None);
    (0..PEERS).for_each(|number| scene.send(number, 0, 30_000));
    scene.arrived();
    assert!(scene.task.pause().is_some_and(|pause| pause < Duration::from_secs(2)), "{:?}", scene.task.pause());
    scene.run(0..PEERS as usize, PEERS as usize);
}

#[test]
fn the_daemon_is_told_once_when_packets_of_several_senders_are_lost() {
    let mut scene = Scene::new(Pacing::OnLoss, false);
    (0..PEERS).for_each(|number| scene.send(number, 0, BYTES));
    scene.task.poll_links();
    let pacer = &mut scene.task.pacing;
    let now = pacer.made.elapsed();
    pacer.handle_loss(now, peer(0));
    assert!(!pacer.take_report());
    (1..3).for_each(|number| pacer.handle_loss(now, peer(number)));
    assert!(pacer.take_report() && !pacer.take_report());
    // All have limits now, in the middle of their messages.
    scene.task.pace();
    assert!(scene.task.links.iter().all(|link| link.granted != u64::MAX));
    scene.run(0..PEERS as usize, PEERS as usize);
}
