//! Two tasks of two hosts, with daemons that only relay, and links that break at any moment.
use super::*;
use crate::clock;
use crate::direct::{ALLOW_DIRECT, ROUTE_DIRECT};
use crate::envelope::{HeldMessages, LinkMessage};
use crate::member::Member;
use crate::message::OWN_DSIG;
use crate::state::{RouteSwitch, TC_FALLBACK};
use crate::task::Task;
use crate::test_daemon::{TestDaemon, enrolled};
use crate::types::{ANY, Filter, Kind, Submit};
use pvm_core::channel::{LaneKind, PAUSE_FIRST, Wish};
use pvm_core::codes::{ENC_XDR, SYSCTX_TC};
use pvm_core::encoding::Writer;
use pvm_core::flows::pacing::Pacing;
use pvm_core::proto::{Direct, LinkCause, Request, ToTask};
use pvm_fmp::{Arrival, Endpoint, FAR, Meta, Sink};
use rustix::event::PollFlags;
use std::cell::Cell;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

#[path = "company_tests.rs"]
mod company;

const TIDS: [Tid; 2] = [Tid(0x40001), Tid(0x80001)];

/// A task and its daemon.
struct Side {
    task: Task,
    daemon: TestDaemon,
    /// The daemon's endpoint.
    endpoint: Endpoint,
    sent: i32,
    received: i32,
}

/// The messages that a daemon relays.
#[derive(Default)]
struct Load(Vec<(Meta, Vec<u8>)>);

impl Sink for Load {
    fn arrived(&mut self, _from: u32, meta: Meta, body: Arrival<'_>) {
        let bytes = match body {
            Arrival::Inline(inline) => {
                let mut bytes = vec![0; inline.len()];
                inline.copy_to(&mut bytes);
                bytes
            }
            Arrival::Remote(remote) => {
                let mut bytes = vec![0; remote.len()];
                remote.read(0, &mut bytes);
                bytes
            }
            Arrival::InTransit(_) => panic!("no receive is posted"),
        };
        self.0.push((meta, bytes));
    }
}

impl Side {
    fn new(tid: Tid) -> Side {
        let (mut task, mut daemon) = enrolled(tid);
        let endpoint = daemon.introduce_itself(&mut task);
        task.member.as_mut().unwrap().direct.set_route(ROUTE_DIRECT);
        Side { task, daemon, endpoint, sent: 0, received: 0 }
    }

    fn member(&mut self) -> &mut Member {
        self.task.member.as_mut().unwrap()
    }

    fn peer(&self) -> Tid {
        TIDS[usize::from(self.task.own_tid() == TIDS[0].0 as i32)]
    }

    fn progress(&mut self) {
        self.member().request_socket_poll();
        // A task that is about to sleep polls all sources.
        self.task.prepare_park();
        self.task.progress();
        self.task.unpark();
    }

    /// Lets the task use links without having asked for them.
    fn ask_for_no_links(&mut self) {
        self.member().direct.set_route(ALLOW_DIRECT);
    }

    /// Sends the next message.
    fn send(&mut self, bytes: usize) {
        let (to, tag) = (self.peer(), self.sent);
        assert_eq!(self.task.psend(to.0 as i32, tag, &vec![tag as u8; bytes]), Ok(Submit::Done));
        self.sent += 1;
    }

    /// Receives all messages that have arrived, and checks that they are in order.
    fn receive(&mut self) {
        let mut data = vec![0; 300_000];
        let filter = Filter { src: ANY, tag: ANY, ctx: 0 };
        self.progress();
        while let Some(delivered) = self.task.try_precv(&filter, Kind::Byte, &mut data) {
            assert_eq!(delivered.tag, self.received, "lost, doubled or out of order");
            assert!(data[..delivered.len].iter().all(|byte| *byte == delivered.tag as u8));
            self.received += 1;
        }
    }

    fn has_link(&mut self) -> bool {
        let peer = self.peer();
        self.member().direct.position(peer).is_ok()
    }

    /// Returns the socket of the link.
    fn socket(&mut self) -> Option<OwnedFd> {
        let peer = self.peer();
        Some(self.member().direct.find(peer)?.fd().try_clone_to_owned().unwrap())
    }
}

/// Both sides, when they pace, and why they have links.
struct Both([Side; 2], Pacing, LinkCause);

impl Both {
    fn new() -> Both {
        Both(TIDS.map(Side::new), Pacing::OnLoss, LinkCause::Program)
    }

    /// Makes the daemons relay the messages that one side has sent by the default route.
    fn carry(&mut self, from: usize) {
        let mut load = Load::default();
        self.0[from].endpoint.poll_through(TIDS[from].0, &mut load);
        let (sender, receiver) = (TIDS[from], TIDS[1 - from]);
        for (mut meta, body) in load.0 {
            assert_eq!(meta[FAR], receiver.0);
            meta[FAR] = sender.0;
            // The result says whether to ring the receiver's doorbell. The receiver polls anyway.
            let _ = self.0[1 - from].endpoint.send_bytes(receiver.0, meta, &body).unwrap();
        }
    }

    /// Makes the daemons connect the two sides by a link.
    fn link(&mut self, secret: Option<[u8; 32]>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        for (side, (socket, calls)) in self.0.iter_mut().zip([(near, true), (far, false)]) {
            socket.set_nonblocking(true).unwrap();
            let (peer, pacing, cause) = (side.peer(), self.1, self.2);
            let direct = Direct { peer, calls, secret, pacing, overflows: false, cause };
            side.daemon.queue(&ToTask::Direct(direct), &[socket.as_fd()]);
        }
    }

    /// Receives all messages that are in flight.
    fn settle(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while (self.0[0].received, self.0[1].received) != (self.0[1].sent, self.0[0].sent) {
            assert!(Instant::now() < deadline, "lost: {} of {}", self.0[1].received, self.0[0].sent);
            for side in 0..2 {
                self.0[side].receive();
                self.carry(side);
            }
        }
    }

    /// Returns both sides with a link that they use in both directions.
    fn linked(secret: Option<[u8; 32]>) -> Both {
        let mut both = Both::new();
        both.use_link(secret);
        both
    }

    /// Makes the daemons connect the two sides by a link, and lets both use it.
    fn use_link(&mut self, secret: Option<[u8; 32]>) {
        let both = self;
        both.link(secret);
        let deadline = Instant::now() + Duration::from_secs(20);
        let carries = |side: &mut Side| {
            let peer = side.peer();
            side.member().direct.find(peer).is_some_and(|link| link.lane.carries() && link.lane.is_reading())
        };
        while !both.0.iter_mut().all(carries) {
            assert!(Instant::now() < deadline);
            for side in 0..2 {
                both.0[side].receive();
                both.carry(side);
            }
        }
    }
}

/// Ends a connection at once, as `ss -K` does.
fn kill(socket: &OwnedFd) {
    rustix::net::connect_unspec(socket).unwrap();
}

#[test]
fn what_a_broken_link_has_not_delivered_comes_once_by_the_default_route() {
    for secret in [None, Some([7; 32])] {
        for killer in 0..2 {
            let mut both = Both::linked(secret);
            both.0[0].send(100);
            both.0[1].receive();
            assert_eq!(both.0[1].received, 1, "by the link");
            // Three messages are received but not acknowledged. The hundred messages that follow fill the socket, and
            // the socket does not take all of them.
            [100, 20_000, 0].into_iter().for_each(|bytes| both.0[0].send(bytes));
            both.0[1].receive();
            for _ in 0..100 {
                both.0[0].send(200_000);
            }
            kill(&both.0[killer].socket().unwrap());
            (0..5).for_each(|_| both.0[0].send(50));
            (0..5).for_each(|_| both.0[1].send(50));
            both.settle();
            assert!(!both.0[0].has_link() && !both.0[1].has_link());
        }
    }
}

#[test]
fn a_link_that_breaks_before_one_side_uses_it_loses_nothing() {
    for secret in [None, Some([7; 32])] {
        let mut both = Both::new();
        both.link(secret);
        let carries = |side: &mut Side| side.member().direct.find(TIDS[0]).is_some_and(|link| link.lane.carries());
        let deadline = Instant::now() + Duration::from_secs(20);
        while !carries(&mut both.0[1]) {
            assert!(Instant::now() < deadline);
            both.0[0].receive();
            both.0[1].receive();
            if both.0[0].member().direct.find(TIDS[1]).is_some_and(|link| link.lane.is_established()) {
                // The test needs a side 0 that has not received the hello, but this side has: try again.
                both = Both::new();
                both.link(secret);
            }
        }
        (0..3).for_each(|_| both.0[1].send(100));
        assert!(!both.0[0].member().direct.find(TIDS[1]).unwrap().lane.is_established());
        kill(&both.0[0].socket().unwrap());
        both.settle();
        for _ in 0..2 {
            (0..2).for_each(|side| both.carry(side));
            both.0.iter_mut().for_each(Side::receive);
        }
        assert_eq!(both.0.each_mut().map(Side::has_link), [false; 2]);
    }
}

#[test]
fn a_direct_link_is_given_up_for_a_fabric_that_may_work_again() {
    let mut both = Both::linked(None);
    for side in &mut both.0 {
        let peer = side.peer();
        let peers = &mut side.member().peers;
        peers.handle_request(LaneKind::Fabric, peer);
        peers.handle_fallback(LaneKind::Fabric, peer, None, true, clock::now());
    }
    std::thread::sleep(PAUSE_FIRST);
    for side in [1, 1, 0] {
        both.0[side].send(100);
        both.settle();
    }
    for _ in 0..2 {
        (0..2).for_each(|side| both.carry(side));
        both.0.iter_mut().for_each(Side::receive);
    }
    assert!(!both.0[0].has_link() && !both.0[1].has_link());
    for side in &mut both.0 {
        let peer = side.peer();
        let wish = Wish { by_program: true, may_use_fabric: false, may_use_direct: true };
        let wanted = side.member().peers.wanted(peer, wish, clock::now());
        assert_eq!(wanted, None, "the fabric is to be asked for first");
    }
}

#[test]
fn links_break_at_any_moment_and_return_and_nothing_is_lost() {
    let (mut links, mut leaves) = (0, 0);
    for seed in 1..=20_u64 {
        let mut state = seed;
        let mut roll = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut both = Both::new();
        both.1 = [Pacing::OnLoss, Pacing::Always][seed as usize / 2 % 2];
        let secret = (seed % 2 == 0).then_some([seed as u8; 32]);
        // With long messages, a side often leaves its link because the peer does not read.
        let longest = [250_000, 250_000, 9000][seed as usize % 3];
        if seed % 3 > 0 {
            both.0.iter_mut().for_each(Side::ask_for_no_links);
        }
        for _ in 0..600 {
            let side = roll(2) as usize;
            match roll(20) {
                0..=5 => both.0[side].send([10, 900, 5000, longest][roll(4) as usize]),
                6..=11 => both.0[side].receive(),
                12..=16 => both.carry(side),
                17 if roll(4) == 0 => both.0[side].socket().iter().for_each(kill),
                17 => {
                    both.settle();
                    both.0[1 - side].send(10);
                    both.settle();
                    let peer = both.0[side].peer();
                    leaves += u32::from(both.0[side].member().direct.leave(peer));
                }
                _ => {
                    if !both.0[0].has_link() && !both.0[1].has_link() {
                        both.link(secret);
                        links += 1;
                    }
                }
            }
        }
        both.settle();
    }
    assert!(links > 20, "links broke and returned {links} times only");
    assert!(leaves > 20, "sides left links {leaves} times only");
}

/// Sends until the sender has used the default route, but at most 100 messages. Returns how many went on the link before.
fn sent_on_link(both: &mut Both, bytes: usize) -> usize {
    for count in 0..100 {
        let peer = both.0[0].peer();
        if !both.0[0].member().has_link_to(peer) {
            return count;
        }
        both.0[0].send(bytes);
        // What a task keeps is lost when it is killed.
        let member = both.0[0].member();
        let link = member.direct.find(peer).unwrap();
        let keeps = !link.lane.falls_back() && (link.connection.wants_write() || !link.queue.all_written());
        assert!(!keeps || member.direct.wants_links(), "{count}");
    }
    100
}

#[test]
fn messages_for_a_peer_that_does_not_read_go_to_the_daemon_unless_the_program_asks_for_links() {
    for (asks, secret) in [(true, None), (false, None), (true, Some([7; 32])), (false, Some([7; 32]))] {
        let mut both = Both::linked(secret);
        if !asks {
            both.0.iter_mut().for_each(Side::ask_for_no_links);
        }
        assert_eq!(sent_on_link(&mut both, 100_000) == 100, asks);
        assert_eq!(both.0[0].task.holds_back(), asks);
        both.settle();
    }
}

#[test]
fn a_thread_that_sleeps_notices_when_the_rest_of_a_message_can_be_written() {
    for secret in [None, Some([7; 32])] {
        let mut both = Both::linked(secret);
        let peer = both.0[0].peer();
        let mut unsent = 0;
        for _ in 0..100 {
            both.0[0].send(100_000);
            let link = both.0[0].member().direct.find(peer).unwrap();
            unsent += u32::from(!link.is_flushed());
            assert!(link.is_flushed() || link.watched.contains(PollFlags::OUT), "{unsent}");
        }
        assert!(unsent > 10, "{unsent}");
        both.settle();
    }
}

#[test]
fn a_side_leaves_a_link_only_behind_what_the_peer_has_taken_in_and_returns_to_it() {
    for secret in [None, Some([7; 32])] {
        let mut both = Both::linked(secret);
        let (here, peer) = (both.0[1].peer(), both.0[0].peer());
        assert!(!both.0[0].member().direct.leave(peer), "the program asks for links");
        both.0.iter_mut().for_each(Side::ask_for_no_links);
        both.0[0].send(10);
        assert!(!both.0[0].member().direct.leave(peer), "that message could be overtaken");
        both.settle();
        both.0[1].send(10);
        both.settle();
        assert!(both.0[0].member().direct.leave(peer) && !both.0[0].member().direct.leave(peer));
        // The other direction goes on, and its messages are acknowledged, although this side sends none on the link.
        for _ in 0..1000 {
            both.0[1].send(10);
            both.0[0].receive();
        }
        both.0[1].receive();
        assert!(both.0[1].member().direct.find(here).unwrap().queue.len() < 600);
        // After a few messages, this side returns, in order.
        for number in 0..10 {
            assert_eq!(both.0[0].member().has_link_to(peer), number >= 4, "{number}");
            both.0[0].send(10);
        }
        both.settle();
        assert!(both.0[1].has_link());
    }
}

#[test]
fn messages_behind_a_route_switch_wait_for_it() {
    let mut both = Both::linked(None);
    both.0.iter_mut().for_each(Side::ask_for_no_links);
    let peer = both.0[0].peer();
    assert!(both.0[0].member().direct.leave(peer));
    (0..8).for_each(|_| both.0[0].send(100));
    assert!(both.0[0].member().has_link_to(peer));
    // The last messages have arrived on the link, the first ones are with the daemon.
    both.0[1].receive();
    assert_eq!(both.0[1].received, 0);
    both.settle();
    assert_eq!(both.0[1].received, 8);
}

#[test]
fn a_task_that_leaves_has_its_unacknowledged_messages_relayed_by_its_daemon() {
    for (bytes, count) in [(100, 3), (200_000, 60)] {
        let mut both = Both::linked(None);
        (0..count).for_each(|_| both.0[0].send(bytes));
        both.0[1].receive();
        (0..count).for_each(|_| both.0[0].send(bytes));
        let begin = Instant::now();
        both.0[0].task.hand_over();
        assert!(begin.elapsed() < ACKNOWLEDGEMENT_WAIT_MAX, "it does not wait");
        let socket = both.0[0].socket();
        both.carry(0);
        // The daemon ends the link.
        if let Some(socket) = socket {
            rustix::net::shutdown(&socket, rustix::net::Shutdown::Write).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while both.0[1].received < 2 * count {
            assert!(Instant::now() < deadline, "lost: {} of {}", both.0[1].received, 2 * count);
            both.0[1].receive();
        }
        both.0[1].receive();
        assert_eq!(both.0[1].received, 2 * count);
    }
}

#[test]
fn a_fallback_is_answered_once_the_default_route_takes_the_answer() {
    let (mut task, mut daemon) = enrolled(TIDS[0]);
    task.state.route_switches.pending.push(RouteSwitch::ToDefault {
        peer: TIDS[1],
        answered: false,
        is_given_up: false,
    });
    task.progress();
    assert!(matches!(daemon.requests()[..], [(_, Request::Connect(host))] if host == TIDS[0].host()));
    let mut endpoint = daemon.introduce_itself(&mut task);
    task.progress();
    let mut load = Load::default();
    endpoint.poll_through(TIDS[0].0, &mut load);
    let answers = load.0.iter().map(|(meta, _)| (meta[1] as i32, meta[FAR]));
    assert_eq!(answers.collect::<Vec<_>>(), [(TC_FALLBACK, TIDS[1].0)]);
    assert!(task.state.route_switches.pending.is_empty());
}

#[test]
fn a_send_after_the_end_of_the_receiver_does_no_harm() {
    let mut both = Both::linked(None);
    both.0[0].send(100);
    let socket = both.0[1].socket().unwrap();
    rustix::net::shutdown(&socket, rustix::net::Shutdown::Write).unwrap();
    both.0[0].receive();
    assert!(!both.0[0].has_link());
    assert!(both.0[0].task.state.route_switches.receipts.get_mut(TIDS[1]).is_some_and(|receipt| receipt.has_ended));
    both.0[0].send(100);
}

#[test]
fn a_link_for_which_there_was_no_room_is_requested_later() {
    let mut side = Side::new(TIDS[0]);
    let links_max = std::mem::replace(&mut side.member().direct.links_max, 0);
    side.task.update_route(TIDS[1], 0);
    assert_eq!(side.member().direct.open_requests, 0);
    side.member().direct.links_max = links_max;
    // The pause is not over.
    side.task.update_route(TIDS[1], 0);
    assert_eq!(side.member().direct.open_requests, 0);
    std::thread::sleep(PAUSE_FIRST);
    side.task.update_route(TIDS[1], 0);
    assert_eq!(side.member().direct.open_requests, 1);
}

#[test]
fn a_requested_link_for_which_there_is_no_room_any_more_is_requested_later() {
    let mut side = Side::new(TIDS[0]);
    side.task.update_route(TIDS[1], 0);
    assert!(side.member().awaits_direct_link(TIDS[1]));
    side.member().direct.links_max = 0;
    let (near, _far) = UnixStream::pair().unwrap();
    let (peer, pacing, cause) = (TIDS[1], Pacing::OnLoss, LinkCause::Program);
    let direct = Direct { peer, calls: true, secret: None, pacing, overflows: false, cause };
    side.daemon.queue(&ToTask::Direct(direct), &[near.as_fd()]);
    side.member().request_socket_poll();
    side.task.update_route(TIDS[1], 0);
    let member = side.member();
    assert!(!member.direct.has_link(TIDS[1]) && !member.peers.is_requested(LaneKind::Direct, TIDS[1]));
}

#[test]
fn a_link_with_a_slow_receiver_is_not_given_up() {
    let mut both = Both::linked(None);
    (0..80).for_each(|_| both.0[0].send(200_000));
    let now = Instant::now();
    let link = both.0[0].member().direct.find(TIDS[1]).unwrap();
    assert!(!link.has_stalled(false, now) && !link.has_stalled(false, now + Duration::from_secs(3600)));
    both.settle();
}

#[test]
fn a_task_that_only_sends_queues_little_while_the_peer_reads() {
    for bytes in [100, 10_000] {
        let mut both = Both::linked(None);
        let (mut most, mut count) = (0, 0);
        let end = Instant::now() + Duration::from_secs(60);
        for number in 1..=3000 {
            both.0[0].send(bytes);
            // The system may need a moment to bring it.
            while both.0[1].received < number && Instant::now() < end {
                both.0[1].receive();
            }
            let queue = &both.0[0].member().direct.find(TIDS[1]).unwrap().queue;
            (most, count) = (most.max(queue.bytes()), count.max(queue.len()));
        }
        assert!(most <= 2 << 20 && count <= 1100, "{most} bytes, {count} messages");
    }
}

/// Returns a message with this tag, and its tag as its only byte.
fn meta_of(tag: i32) -> Meta {
    let mut meta: Meta = [0, tag, 0, OWN_DSIG, OWN_DSIG, 0].map(|word| word as u32);
    meta[FAR] = TIDS[1].0;
    meta
}

#[test]
fn what_has_arrived_on_a_fabric_goes_before_what_follows_the_fallback_message() {
    let filter = Filter { src: ANY, tag: ANY, ctx: 0 };
    for by_precv in [false, true] {
        let mut side = Side::new(TIDS[0]);
        // Two messages have arrived on the fabric since the task last received; the peer knows of none of them.
        let held = Rc::new(HeldMessages::default());
        for tag in 0..2 {
            let message = LinkMessage { peer: TIDS[1], meta: meta_of(tag), body: vec![tag as u8] };
            held.messages.borrow_mut().push_back(message);
        }
        side.task.state.route_switches.receipts.open(TIDS[1], Rc::new(Cell::new(2)), Some(held));
        // By the default route, the peer sends both of them again, and two more.
        let mut fallback: Meta = [SYSCTX_TC, TC_FALLBACK, 0, ENC_XDR, OWN_DSIG, 0].map(|word| word as u32);
        fallback[FAR] = TIDS[1].0;
        let announced = Writer::new().int(0).int(0).finish();
        let _ = side.endpoint.send_bytes(TIDS[0].0, fallback, &announced).unwrap();
        for tag in 0..4 {
            let _ = side.endpoint.send_bytes(TIDS[0].0, meta_of(tag), &[tag as u8]).unwrap();
        }
        let mut tags = Vec::new();
        for _ in 0..20 {
            let tag = match by_precv {
                true => side.task.try_precv(&filter, Kind::Byte, &mut [0; 8]).map(|delivered| delivered.tag),
                false => side.task.try_receive(&filter).map(|mid| side.task.state.store.get(mid).unwrap().tag),
            };
            tags.extend(tag);
        }
        assert_eq!(tags, [0, 1, 2, 3], "by precv: {by_precv}");
    }
}
