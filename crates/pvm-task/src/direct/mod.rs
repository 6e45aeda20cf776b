//! Direct links to tasks of other hosts (`PvmRoute`, contract 2.9).
//!
//! The daemons connect two tasks (`pvm_core::machine`, `direct`). A link is used as soon as both tasks have it; until
//! then, and where there is no link, messages take the default route. A send writes to the socket, and waits only while
//! the peer goes on reading. If the peer stops reading, the unwritten rest of the message is queued, and later calls of
//! the library write it. Messages stay queued until the peer's library has acknowledged them, so no message is lost
//! when a link breaks.
mod awaiting;
pub(crate) mod fallback;
pub(crate) mod frames;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod link;
mod multicasts;
mod outgoing;
mod pacing;
mod progress;
pub(crate) mod send_queue;
mod stall;
mod waiting;

use crate::clock;
use crate::envelope::LinkMessage;
use link::DirectLink;
pub(crate) use link::incoming::PostedReceive;
use link::incoming::{FAST_BYTES, ReadOutcome, Until};
use multicasts::Multicasts;
use pacing::LinkPacer;
pub(crate) use progress::{BUSY_POLLS, STALL_POLLS};
use pvm_core::channel::{GivenUp, LaneEnd, Receipts};
use pvm_core::codes::Code;
use pvm_core::proto::{Direct, LinkCause, Request};
use pvm_core::tid::Tid;
use pvm_descriptor::{OwnDescriptor, above_standard};
use pvm_fmp::{Block, Meta, has_stack};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFlags, Timespec};
use rustix::process::Resource;
use send_queue::QueuedMessage;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Direct links of a task, which may use at most a quarter of the task's descriptors.
///
/// * Filled by: links that this task and tasks of other hosts request
/// * Setting: the limit of open files, `ulimit -n`
/// * Reached: the new link is closed, and messages stay on the default route
/// * Test: `a_task_has_no_more_direct_links_than_the_limit`
const LINKS_MAX: usize = 1024;
/// The number of descriptors that direct links may use is the process's limit of open files divided by this number.
const DESCRIPTOR_SHARE: u64 = 4;
/// A task with at most this number of links reads all of them, without first asking the system which are readable.
const READ_ALL_LINKS_MAX: usize = 2;
/// How much of its thread's stack a call must have left that makes a link, in bytes. The exchange of keys took 18 KiB, and
/// a thread may have no more than 16 KiB.
pub(crate) const LINK_STACK_BYTES: usize = 64 << 10;
/// How long a sender waits for a peer that reads nothing.
const SEND_WAIT_MAX: Duration = Duration::from_millis(20);

/// After this many polls that have found no message on a link, a waiting call polls the links as rarely: each poll of links
/// is a system call, in whose time a message of this host could have been received.
const EMPTY_POLLS_MAX: u32 = 64;

/// Values of the option `PvmRoute`.
const DONT_ROUTE: i32 = 1;
const ALLOW_DIRECT: i32 = 2;
const ROUTE_DIRECT: i32 = 3;

/// The direct links of a task.
pub(crate) struct DirectLinks {
    /// All links, by the peer's tid.
    pub links: Vec<DirectLink>,
    /// Links that the daemons have made, and that wait for a call with enough stack, with their descriptors.
    deferred: Vec<(Direct, Vec<OwnDescriptor>)>,
    /// An epoll descriptor of the sockets of all links, for threads that sleep.
    epoll: Option<OwnDescriptor>,
    /// How many requests for links have no reply yet.
    pub open_requests: usize,
    route: i32,
    /// Messages that were read from links, until the task takes them over.
    pub arrived: VecDeque<LinkMessage>,
    /// Memory of an earlier body, for the next long one. It is here only while `progress` polls.
    spare: Vec<u8>,
    /// How many bytes of bodies have been read since a waiting task last asked.
    arrived_bytes: usize,
    /// Events that other parts of the task have not handled yet.
    events: Vec<RouteEvent>,
    /// Whether there are links, or events to handle.
    active: bool,
    polls: u32,
    /// How many polls of waiting calls have found no message on a link since one was found.
    empty_polls: u32,
    /// When the links were last checked for stalls.
    stalls_checked: Option<Instant>,
    /// A peer that has exited. The link to this peer is read to its end before further frames of the daemon are read.
    pub draining: Option<Tid>,
    links_max: usize,
    pub pacing: LinkPacer,
    multicasts: Multicasts,
}

impl Default for DirectLinks {
    fn default() -> DirectLinks {
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        let links_max = limit.map_or(LINKS_MAX, |limit| (limit / DESCRIPTOR_SHARE) as usize).min(LINKS_MAX);
        DirectLinks::with_limit(links_max)
    }
}

impl DirectLinks {
    #[inline(always)]
    pub fn is_active(&self) -> bool {
        self.active
    }

    pub fn position(&self, peer: Tid) -> Result<usize, usize> {
        self.links.binary_search_by_key(&peer, |link| link.peer)
    }

    pub fn find(&mut self, peer: Tid) -> Option<&mut DirectLink> {
        let at = self.position(peer).ok()?;
        Some(&mut self.links[at])
    }

    /// Returns whether messages to that task go on a link.
    pub fn carries(&self, to: Tid) -> bool {
        self.position(to).is_ok_and(|at| self.links[at].lane.carries())
    }

    /// Returns whether there is a link to that task on which messages go, apart from some multicasts.
    pub fn is_usual_route(&self, to: Tid) -> bool {
        self.position(to).is_ok_and(|at| self.links[at].lane.carries() || self.links[at].lane.is_left())
    }

    /// Returns why a link is asked for now.
    pub fn cause(&self) -> LinkCause {
        if self.wants_links() { LinkCause::Program } else { LinkCause::Traffic }
    }

    /// Returns whether the program asks for direct links.
    pub fn wants_links(&self) -> bool {
        self.route == ROUTE_DIRECT
    }

    /// Returns whether the program allows links to other tasks.
    pub fn allows_links(&self) -> bool {
        self.route != DONT_ROUTE
    }

    /// Counts a message to a task by the default route, if there is a link that was left: after some of them, this task
    /// returns to it. Returns whether there is a link.
    pub fn count_by_default_route(&mut self, to: Tid) -> bool {
        self.find(to).map(|link| link.lane.count_by_default_route()).is_some()
    }

    /// Returns whether no program has asked for one of the links.
    pub fn has_unasked(&self) -> bool {
        self.links.iter().any(|link| link.cause == LinkCause::Traffic)
    }

    /// Returns whether messages were read from links that the task has not taken over.
    pub fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Begins the fallback from the links on which messages go to these peers and that no program has asked for. Returns
    /// whether there are any.
    pub fn leave_unasked(&mut self, is_meant: impl Fn(Tid) -> bool) -> bool {
        let is_unasked = |link: &&mut DirectLink| link.cause == LinkCause::Traffic && link.lane.carries();
        let mut is_any = false;
        for link in self.links.iter_mut().filter(is_unasked).filter(|link| is_meant(link.peer)) {
            is_any = true;
            if !link.is_broken() {
                link.lane.give_up(GivenUp::Company);
            }
        }
        is_any
    }

    /// Returns whether there is a link to that peer, used or not.
    pub fn has_link(&self, peer: Tid) -> bool {
        self.position(peer).is_ok() || self.deferred.iter().any(|(direct, _)| direct.peer == peer)
    }

    /// Returns whether a link was requested, or exists and is not used yet: a poll may make this link usable.
    pub fn has_pending(&self) -> bool {
        self.open_requests > 0 || self.links.iter().any(|link| link.lane.is_pending())
    }

    /// Returns the descriptor that sleeping threads watch. Makes it when it is first needed.
    pub fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        if self.epoll.is_none() {
            self.epoll =
                epoll::create(CreateFlags::CLOEXEC).ok().and_then(|epoll| above_standard(epoll).ok().map(Into::into));
        }
        self.epoll.as_ref().map(|epoll| epoll.as_fd())
    }

    /// Returns the descriptor that sleeping threads watch, if it has been made.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(|epoll| epoll.as_fd())
    }

    /// Returns an empty set with room for `links_max` links.
    fn with_limit(links_max: usize) -> DirectLinks {
        DirectLinks {
            links: Vec::new(),
            deferred: Vec::new(),
            epoll: None,
            open_requests: 0,
            route: ALLOW_DIRECT,
            arrived: VecDeque::new(),
            spare: Vec::new(),
            arrived_bytes: 0,
            events: Vec::new(),
            active: false,
            polls: 0,
            empty_polls: 0,
            stalls_checked: None,
            draining: None,
            links_max,
            pacing: LinkPacer::default(),
            multicasts: Multicasts::default(),
        }
    }

    /// Returns how long a thread may sleep even if nothing arrives.
    pub fn pause(&self) -> Option<Duration> {
        // Without links, nothing is polled or paced.
        self.pacing.pause().filter(|_| !self.links.is_empty())
    }

    /// Returns whether one more link can be requested.
    pub fn may_request(&self) -> bool {
        self.links.len() + self.deferred.len() + self.open_requests < self.links_max
    }

    /// Returns whether there is room for one more link.
    pub fn has_room(&self) -> bool {
        self.links.len() + self.deferred.len() < self.links_max
    }

    /// Makes the epoll descriptor watch the link's socket for the events that matter now.
    fn update_interest(&mut self, at: usize) {
        let Some(epoll) = &self.epoll else { return };
        let link = &mut self.links[at];
        let interest = link.interest();
        if interest != link.watched {
            link.watched = interest;
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, interest.contains(PollFlags::IN));
            flags.set(EventFlags::OUT, interest.contains(PollFlags::OUT));
            let data = EventData::new_u64(u64::from(link.peer.0));
            // A socket without events to watch for is removed: otherwise epoll would report its end again and again.
            let _ = epoll::delete(epoll, link.fd());
            if !flags.is_empty() {
                let _ = epoll::add(epoll, link.fd(), data, flags);
            }
        }
    }

    /// Takes in the messages that have arrived on one link. Gives the link up if it has ended.
    pub fn poll_link(&mut self, at: usize, posted: Option<&mut PostedReceive<'_>>) -> usize {
        self.poll_link_until(at, posted, Until::Turn)
    }

    fn poll_link_until(&mut self, at: usize, posted: Option<&mut PostedReceive<'_>>, until: Until) -> usize {
        let link = &mut self.links[at];
        let peer = link.peer;
        link.lacks_stack = !link.lane.has_said_hello() && !has_stack(LINK_STACK_BYTES);
        if link.lacks_stack {
            self.update_interest(at);
            return 0;
        }
        let mut outcome = ReadOutcome { spare: std::mem::take(&mut self.spare), until, ..ReadOutcome::default() };
        let result = link.read(&mut self.arrived, posted, &mut outcome);
        self.pacing.count(peer, link.take_news());
        if outcome.usable {
            self.events.push(RouteEvent::Usable(peer, link.fd().as_raw_fd()));
        }
        match result {
            Ok(()) => self.update_interest(at),
            // What was read ahead is wanted first.
            Err(_) if !self.links[at].read_ahead.is_empty() => {
                self.links[at].ends_behind = true;
                self.update_interest(at);
            }
            Err(_) => self.on_read_end(at),
        }
        self.spare = outcome.spare;
        self.arrived_bytes = self.arrived_bytes.saturating_add(outcome.bytes);
        if outcome.messages > 0 || outcome.bytes > 0 {
            self.empty_polls = 0;
        }
        outcome.messages
    }

    /// Returns whether messages on the link to that peer come after all that the daemon and other tasks have queued before: no
    /// program has asked for the link. The last messages of a peer that has ended come before that news.
    pub fn is_ordered(&self, peer: Tid) -> bool {
        let is_unasked = self.position(peer).is_ok_and(|at| self.links[at].cause == LinkCause::Traffic);
        is_unasked && self.draining != Some(peer)
    }

    /// Counts a message that this task has taken over from a link. Acknowledgements report this count to the peer.
    pub fn count_received<T>(&mut self, receipts: &mut Receipts<T>, arrived: &LinkMessage) {
        match self.position(arrived.peer) {
            Ok(at) => self.links[at].count_received(arrived.body.len()),
            Err(_) => {
                if let Some(receipt) = receipts.get_mut(arrived.peer) {
                    receipt.count.set(receipt.count.get().wrapping_add(1));
                }
            }
        }
    }

    /// Handles a link from which no more messages can be read.
    fn on_read_end(&mut self, at: usize) {
        let link = &mut self.links[at];
        let (peer, is_clean) = (link.peer, link.has_ended());
        self.pacing.remove(peer);
        match link.lane.handle_end(is_clean) {
            LaneEnd::PeerGone => self.remove(at, RouteEvent::Dead(peer)),
            LaneEnd::NeverMade => self.remove(at, RouteEvent::Unmade(peer)),
            LaneEnd::FallsBack => {
                if self.draining == Some(peer) {
                    self.draining = None;
                }
                self.update_interest(at);
            }
        }
    }

    /// Removes a link to a peer from which nothing more comes.
    fn remove_drained(&mut self, at: usize) {
        let peer = self.links[at].peer;
        let is_established = self.links[at].lane.is_established();
        self.remove(at, if is_established { RouteEvent::Dead(peer) } else { RouteEvent::Unmade(peer) });
    }

    /// Removes a link, for this reason.
    fn remove(&mut self, at: usize, event: RouteEvent) {
        self.events.push(event);
        self.close_link(at);
    }

    /// Closes a link.
    fn close_link(&mut self, at: usize) {
        let link = self.links.remove(at);
        self.pacing.remove(link.peer);
        if let (Some(epoll), false) = (&self.epoll, link.watched.is_empty()) {
            let _ = epoll::delete(epoll, link.fd());
        }
        if self.draining == Some(link.peer) {
            self.draining = None;
        }
        link.shut_down();
    }

    /// Returns the peers whose links have to be read.
    fn ready(&self) -> Vec<Tid> {
        let epoll = match &self.epoll {
            Some(epoll) if self.links.len() > READ_ALL_LINKS_MAX => epoll,
            _ => return self.links.iter().map(|link| link.peer).collect(),
        };
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 16];
        let count = epoll::wait(epoll, &mut events[..], Some(&Timespec::default())).unwrap_or(0);
        let ready = events[..count].iter().map(|event| Tid(event.data.u64() as u32));
        let unfinished = self.links.iter().filter(|link| link.needs_read()).map(|link| link.peer);
        ready.chain(unfinished).collect()
    }

    /// Lets each of the next polls of a waiting call poll the links: a message is expected on one.
    pub fn expect_messages(&mut self) {
        self.empty_polls = 0;
    }

    /// Returns whether a long message has been arriving fast since the last call: a task that waits had better not sleep.
    pub fn takes_in_fast(&mut self) -> bool {
        std::mem::take(&mut self.arrived_bytes) >= FAST_BYTES
    }

    /// Returns whether to poll the links now, in a call that waits and has found no message by other routes. If not, it
    /// tries again soon, or polls them before it sleeps.
    pub fn is_poll_due(&mut self) -> bool {
        self.empty_polls = self.empty_polls.wrapping_add(1);
        self.empty_polls < EMPTY_POLLS_MAX || self.empty_polls % BUSY_POLLS == 0
    }

    /// Takes in the messages that have arrived on all links.
    fn poll_links(&mut self) {
        self.poll_all(&self.ready(), |_| Until::Turn);
    }

    /// Takes in the messages that have arrived on the links to these peers. `until`: when the read of a link ends.
    fn poll_all(&mut self, peers: &[Tid], until: impl Fn(Tid) -> Until) {
        for peer in peers {
            if let Ok(at) = self.position(*peer) {
                self.poll_link_until(at, None, until(*peer));
            }
        }
        self.pace();
    }

    /// Sends a message on a link, or queues it there.
    pub fn send(&mut self, to: Tid, meta: Meta, body: Body<'_>) -> Result<(), Code> {
        // If the link is gone, its peer has exited, and the message is dropped.
        let Some(link) = self.find(to) else { return Ok(()) };
        let mut copy = link.reserve(body)?;
        // The peer may answer at once.
        self.expect_messages();
        let (begin, mut since, mut has_read_ahead) = (clock::now(), None, false);
        let written = loop {
            let Some(link) = self.find(to) else { return Ok(()) };
            let before = link.progress();
            link.flush();
            if link.is_send_closed() {
                break false;
            }
            if link.queue.all_written() && link.write(meta, body) {
                break true;
            }
            if link.progress() != before {
                since = None;
            } else if link.is_blocked()
                || !link.can_hear_grants()
                || since.get_or_insert_with(Instant::now).elapsed() >= SEND_WAIT_MAX
            {
                break false;
            } else if !std::mem::replace(&mut has_read_ahead, true) {
                self.read_ahead();
            } else {
                self.wait_for_room(Some(to), SEND_WAIT_MAX);
            }
        };
        let Ok(at) = self.position(to) else { return Ok(()) };
        let awaits = written && self.should_await(at, body);
        if !awaits {
            copy.fill(body);
        }
        self.links[at].bursts.note_on_lane(body.len(), begin..clock::now());
        self.links[at].enqueue(QueuedMessage { meta, body: copy, length: body.len() }, written);
        let handed_over = written && (self.wants_links() || self.wait_until_flushed(to));
        let Ok(at) = self.position(to) else { return Ok(()) };
        self.give_up_if_worse(at, handed_over);
        if awaits {
            self.wait_for_acknowledgement(to, body);
        } else if written && self.links[at].should_poll() {
            self.poll_link(at, None);
        }
        self.watch_unsent(to);
        Ok(())
    }

    /// Lets a thread that sleeps notice when the socket can take what is left of the messages to a task, encrypted or not.
    fn watch_unsent(&mut self, to: Tid) {
        if let Ok(at) = self.position(to) {
            let link = &self.links[at];
            if !link.queue.all_written() || !link.is_flushed() {
                self.update_interest(at);
            }
        }
    }

    /// Starts the fallback from a link that the program has not asked for, if the default route is better: daemons keep
    /// messages for a peer that does not read or grant, also when this task is killed, and take many short messages at once.
    /// `handed_over`: whether the socket has taken the whole of the last message.
    fn give_up_if_worse(&mut self, at: usize, handed_over: bool) {
        let wants_links = self.wants_links();
        let link = &mut self.links[at];
        // A link that has broken falls back in any case, and was not given up.
        if wants_links || link.is_broken() {
            return;
        }
        if !handed_over {
            link.lane.give_up(if link.has_heard_switch() { GivenUp::Unread } else { GivenUp::Unheard });
        } else if link.bursts.is_long() {
            link.lane.give_up(GivenUp::Burst);
        }
    }

    /// Leaves the link to a task for the default route, so that a multicast can take it. Returns `false` if the multicast
    /// has to take the link.
    pub fn leave(&mut self, peer: Tid) -> bool {
        // Who asks for links gets every message on them.
        !self.wants_links() && self.find(peer).is_some_and(DirectLink::leave)
    }

    /// Sets `PvmRoute`. Returns the request that notifies the daemon, if one is needed.
    pub fn set_route(&mut self, route: i32) -> Option<Request> {
        let before = std::mem::replace(&mut self.route, route);
        if self.wants_links() {
            self.links.iter_mut().for_each(|link| link.lane.return_to_lane());
        }
        let changed = (before == DONT_ROUTE) != (route == DONT_ROUTE);
        changed.then_some(Request::AllowDirect(route != DONT_ROUTE))
    }

    /// If the next message on a link is the one for which the receive is posted, reads the message into the memory of
    /// the receive.
    pub fn receive_posted(&mut self, posted: &mut PostedReceive<'_>) {
        for peer in self.ready() {
            let Ok(at) = self.position(peer) else { continue };
            let first = self.arrived.is_empty();
            self.poll_link(at, first.then_some(&mut *posted));
            if posted.found.is_some() {
                self.empty_polls = 0;
                break;
            }
        }
        self.pace();
    }
}

/// An event of a direct link that other parts of the task have to handle.
pub(crate) enum RouteEvent {
    /// The link to a peer can be used. Holds the peer and the link's descriptor.
    Usable(Tid, i32),
    /// The link to a peer is not used any more.
    Ended(Tid),
    /// The peer has exited, and its link has ended.
    Dead(Tid),
    /// The link was never established.
    Unmade(Tid),
}

/// The body of a message to be sent.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    Bytes(&'a [u8]),
    Blocks(&'a [(Block, usize)]),
}

impl Body<'_> {
    pub fn len(&self) -> usize {
        match self {
            Body::Bytes(bytes) => bytes.len(),
            Body::Blocks(blocks) => blocks.iter().map(|(_, used)| used).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_daemon::enrolled;
    use pvm_core::flows::pacing::Pacing;
    use pvm_core::proto::{Direct, ToTask};
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    #[test]
    fn a_link_that_has_come_is_not_requested_again() {
        let (mut task, mut daemon) = enrolled(Tid(0x40001));
        task.member.as_mut().unwrap().direct.set_route(ROUTE_DIRECT);
        let [one, two] = [Tid(0x80001), Tid(0x80002)];
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, _far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let direct = Direct {
            peer: one,
            calls: true,
            secret: None,
            pacing: Pacing::OnLoss,
            overflows: false,
            cause: LinkCause::Program,
        };
        daemon.queue(&ToTask::Direct(direct), &[near.as_fd()]);
        task.member.as_mut().unwrap().cancel_socket_poll();
        for peer in [one, two, two, one] {
            task.update_route(peer, 0);
        }
        let asked = |(_, request)| if let Request::Direct { to, .. } = request { Some(to) } else { None };
        assert_eq!(daemon.requests().into_iter().filter_map(asked).collect::<Vec<_>>(), [two]);
    }

    #[test]
    fn a_task_has_no_more_direct_links_than_the_limit() {
        let mut links = DirectLinks::with_limit(2);
        links.open_requests = 1;
        assert!(links.may_request() && links.has_room());
        for number in 1..=2 {
            let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
            let (socket, _) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
            let peer = Tid(0x80000 + number);
            let direct = Direct {
                peer,
                calls: true,
                secret: None,
                pacing: Pacing::OnLoss,
                overflows: false,
                cause: LinkCause::Program,
            };
            links.links.push(DirectLink::new(&direct, socket, u64::MAX).unwrap());
            assert!(!links.may_request());
        }
        assert!(!links.has_room());
        assert!(DirectLinks::default().links_max <= LINKS_MAX);
    }
}
