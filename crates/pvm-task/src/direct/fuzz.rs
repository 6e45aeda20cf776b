//! Fuzz target: a task with two direct links, to an honest and to a hostile peer, that sends, waits, and reads ahead. What
//! the hostile peer does must not cost a message on the other link, nor change one or its order.
use super::frames::Frame;
use super::link::DirectLink;
use super::{Body, DirectLinks, ROUTE_DIRECT};
use crate::fuzz::{send_as_peer, write, write_frame};
use pvm_core::flows::pacing::Pacing;
use pvm_core::proto::{Direct, LinkCause};
use pvm_core::tid::Tid;
use pvm_fuzz::{Source, Unstructured, part};
use pvm_net::Link;
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The code that handles this input.
pub const DECODER: &[Source] = &[
    part(
        "crates/pvm-task/src/direct/waiting.rs",
        &["wait_for_room", "read_ahead", "on_route_switch", "wait_until_ready"],
    ),
    part(
        "crates/pvm-task/src/direct/mod.rs",
        &["poll_links", "poll_all", "send", "poll_link_until", "on_read_end", "remove", "close_link"],
    ),
    part("crates/pvm-task/src/direct/link/incoming.rs", &["is_over", "take_news", "has_begun"]),
    part("crates/pvm-task/src/direct/link/mod.rs", &["on_route_switch", "holds_message", "interest_of"]),
];

const HERE: Tid = Tid(0x40001);
const HONEST: Tid = Tid(0x80001);
const HOSTILE: Tid = Tid(0xc0001);

/// How many messages may be on their way to an honest task: their bytes fit its socket.
const WINDOW: u32 = 8;
const BODY_BYTES_MAX: usize = 8 << 10;
/// The most messages of this length that are sent to the hostile peer. Its socket cannot hold them, so each send waits.
const LONG_SENDS_MAX: u32 = 3;
const LONG_BYTES: usize = 2 << 20;
/// How many polls are enough for everything to arrive.
const POLLS_MAX: usize = 10_000;

/// An honest task, and what it knows of its messages to the other one.
struct Side {
    links: DirectLinks,
    peer: Tid,
    sent: u32,
    received: u32,
    /// How often this task has switched to the link, and how many of the peer's switches have arrived here.
    switches: u32,
    heard: u32,
}

impl Side {
    fn new(peer: Tid, socket: OwnedFd, calls: bool, secret: Option<[u8; 32]>) -> Side {
        let mut links = DirectLinks::with_limit(2);
        // So a link is given up only if it breaks.
        links.route = ROUTE_DIRECT;
        links.links.push(link_to(peer, socket, calls, secret));
        Side { links, peer, sent: 0, received: 0, switches: 0, heard: 0 }
    }

    fn link(&mut self) -> &mut DirectLink {
        self.links.find(self.peer).expect("the link to an honest task stays")
    }

    /// Lets this task send on the link.
    fn switch(&mut self) {
        self.link().lane.return_to_lane();
        if self.link().lane.may_switch() {
            let link = self.link();
            link.lane.handle_switched(link.queue.sent_count());
            self.switches += 1;
        }
    }

    /// Sends the next message, unless too many are on their way or this task does not use the link.
    fn send(&mut self, received: u32, bytes: usize) {
        if self.link().lane.carries() && self.sent - received < WINDOW {
            let body = body_of(self.sent, bytes % BODY_BYTES_MAX);
            let meta = [self.switches, self.sent, 0, 0, 0, 0];
            self.links.send(self.peer, meta, Body::Bytes(&body)).expect("memory");
            self.sent += 1;
        }
    }

    /// Hears a route switch of the peer, which has switched this often.
    fn hear_switch(&mut self, switches: u32) {
        if self.heard < switches && self.links.position(self.peer).is_ok() {
            self.heard += 1;
            self.links.on_route_switch(self.peer);
        }
    }

    /// Checks the messages that have arrived.
    fn take(&mut self) {
        for message in std::mem::take(&mut self.links.arrived) {
            if message.peer == self.peer {
                assert!(message.meta[0] <= self.heard, "earlier messages may still come on the default route");
                assert_eq!(message.meta[1], self.received);
                assert!(message.body == body_of(self.received, message.body.len()));
                self.received += 1;
                if let Some(link) = self.links.find(self.peer) {
                    link.count_received(message.body.len());
                }
            }
        }
    }
}

fn body_of(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u32 * 7 + number) as u8).collect()
}

fn link_to(peer: Tid, socket: OwnedFd, calls: bool, secret: Option<[u8; 32]>) -> DirectLink {
    let direct = Direct { peer, calls, secret, pacing: Pacing::OnLoss, overflows: false, cause: LinkCause::Program };
    DirectLink::new(&direct, socket, u64::MAX).expect("a link")
}

fn sockets() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets")
}

/// Lets the bytes choose what the three tasks do.
pub fn read_ahead(bytes: &[u8]) {
    // An error only means that no bytes are left.
    let _ = run(&mut Unstructured::new(bytes));
}

fn run(from: &mut Unstructured<'_>) -> pvm_fuzz::Result<()> {
    let first: u8 = from.arbitrary()?;
    let secret = (first & 1 != 0).then_some([7; 32]);
    let (near, far) = sockets();
    let (mut here, mut honest) = (Side::new(HONEST, near, true, secret), Side::new(HERE, far, false, secret));
    let mut polls = 0;
    while ![&here, &honest].iter().all(|side| side.links.links[0].lane.may_switch()) {
        poll(&mut [&mut here, &mut honest], &mut polls);
    }
    let (near, far) = sockets();
    here.links.links.push(link_to(HOSTILE, near, first & 2 != 0, None));
    let result = act(from, &mut here, &mut honest, Some(Link::clear(far)));
    polls = 0;
    if first & 4 != 0 {
        // What a task has sent arrives also when it has exited.
        while !honest.link().queue.all_written() || !honest.link().is_flushed() {
            poll(&mut [&mut here, &mut honest], &mut polls);
        }
        let (sent, switches) = (honest.sent, honest.switches);
        drop(honest);
        let reads_ahead = first & 8 != 0;
        let may_read = |link: &mut DirectLink| link.interest_of(true).contains(PollFlags::IN);
        while reads_ahead && here.links.find(HONEST).is_some_and(may_read) {
            here.links.wait_for_room(None, Duration::ZERO);
            poll(&mut [], &mut polls);
        }
        while here.received < sent || here.links.find(HONEST).is_some_and(|link| !link.lane.falls_back()) {
            here.hear_switch(switches);
            poll(&mut [&mut here], &mut polls);
        }
        return result;
    }
    while (here.received, honest.received) != (honest.sent, here.sent) {
        here.hear_switch(honest.switches);
        honest.hear_switch(here.switches);
        poll(&mut [&mut here, &mut honest], &mut polls);
        assert!(!here.link().lane.falls_back() && !honest.link().lane.falls_back());
    }
    result
}

fn either<'a>(here: &'a mut Side, honest: &'a mut Side, from: &mut Unstructured<'_>) -> pvm_fuzz::Result<&'a mut Side> {
    Ok(if from.arbitrary()? { here } else { honest })
}

/// Lets honest tasks take in what has arrived.
fn poll(sides: &mut [&mut Side], polls: &mut usize) {
    *polls += 1;
    assert!(*polls < POLLS_MAX, "messages or hellos are missing");
    for side in sides {
        side.links.poll_links();
        side.take();
    }
}

fn act(
    from: &mut Unstructured<'_>,
    here: &mut Side,
    honest: &mut Side,
    mut hostile: Option<Link>,
) -> pvm_fuzz::Result<()> {
    let mut long_sends = 0;
    while !from.is_empty() {
        match from.arbitrary::<u8>()? % 24 {
            0 => write(&hostile, from.bytes_of_some_length()?),
            1 => write_frame(&mut hostile, Frame::Hello { up_to: u64::MAX }, 0),
            2..=4 => send_as_peer(&mut hostile, from, 0)?,
            5 => write_frame(&mut hostile, Frame::Leaving, 0),
            6 => write_frame(&mut hostile, Frame::Acknowledgement { received: from.arbitrary::<u8>()?.into() }, 0),
            7 if from.arbitrary::<u8>()? == 0 => hostile = None,
            8 => {
                if here.links.position(HOSTILE).is_ok() {
                    here.links.on_route_switch(HOSTILE);
                }
            }
            9 => here.hear_switch(honest.switches),
            10 => honest.hear_switch(here.switches),
            11..=12 => honest.send(here.received, from.arbitrary::<u16>()?.into()),
            13 => here.send(honest.received, from.arbitrary::<u16>()?.into()),
            14 => {
                let is_long = long_sends < LONG_SENDS_MAX && from.arbitrary::<u8>()? % 8 == 0;
                long_sends += u32::from(is_long);
                let bytes = if is_long { LONG_BYTES } else { 100 };
                let link = here.links.find(HOSTILE).filter(|link| link.lane.carries() || link.lane.may_switch());
                if let Some(link) = link {
                    link.lane.handle_switched(link.queue.sent_count());
                    here.links.send(HOSTILE, [0; 6], Body::Bytes(&vec![1; bytes])).expect("memory");
                }
            }
            15 => here.links.read_ahead(),
            16 => here.links.wait_for_room(Some(HOSTILE), Duration::ZERO),
            17 => honest.links.poll_links(),
            18 => either(here, honest, from)?.switch(),
            19 => {
                either(here, honest, from)?.link().leave();
            }
            _ => here.links.poll_links(),
        }
        here.take();
        honest.take();
    }
    Ok(())
}
