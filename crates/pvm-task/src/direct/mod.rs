//! Direct links to tasks of other hosts (`PvmRoute`, contract 2.9).
//!
//! The daemons bring two tasks together (`pvm_core::machine`, `direct`). A link is used as soon as
//! both tasks have it; until then, and where there is none, messages take the default route. A send
//! writes to the socket, and waits only as long as the other side takes what is sent; the rest is
//! kept and goes out whenever the task is in the library. What has been sent is kept too until the
//! other side's library has it, so that a link that breaks loses nothing.
pub(crate) mod fallback;
pub(crate) mod link;
pub(crate) mod send_queue;
mod stall;

use crate::control::Member;
use crate::message::OWN_DSIG;
use crate::requests::Purpose;
use crate::system::TC_ROUTE_SWITCH;
use crate::task::State;
use fallback::{Backoff, ReceivedOnLink, RouteSwitch};
pub(crate) use link::PostedReceive;
use link::{DirectLink, LinkMessage, ReadOutcome};
use pvm_core::codes::{Code, ENC_XDR, SYSCTX_TC};
use pvm_core::proto::{Direct, Request};
use pvm_core::tid::Tid;
use pvm_fmp::descriptor::above_standard;
use pvm_fmp::{Block, FAR, Meta};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::Shutdown;
use rustix::process::Resource;
use send_queue::{QueuedBody, QueuedMessage};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Direct links of a task, at most a quarter of the descriptors that it may have.
///
/// * Filled by: tasks of other hosts that ask for links to it
/// * Setting: the limit of open files, `ulimit -n`
/// * Reached: the link is closed, and the default route stays
/// * Test: `a_task_has_so_many_direct_links_and_no_more`
const LINKS_MAX: usize = 1024;
/// Of the descriptors that the process may have, one in so many is for direct links.
const DESCRIPTOR_SHARE: u64 = 4;
/// Up to so many links each one is read without asking first whether there is something.
const READ_UNASKED_MAX: usize = 2;
/// While other messages come, the links are looked at once in so many times.
const BUSY_LOOKS: u32 = 16;
/// How long a sender waits for a receiver that takes nothing.
const PATIENCE: Duration = Duration::from_millis(20);

/// So many times of many that links are looked at one polls for those that have stalled too.
const STALL_LOOKS: u32 = 1024;
/// From here on no copy is made of what is the caller's while the other side goes on taking it: most of it is there
/// before all of it could be acknowledged.
const LENT_BYTES_MIN: usize = 8 << 20;

/// `PvmRoute` as programs set it.
const DONT_ROUTE: i32 = 1;
const ROUTE_DIRECT: i32 = 3;

/// The direct links of a task.
pub(crate) struct DirectLinks {
    /// By tid.
    links: Vec<DirectLink>,
    /// All sockets, for who sleeps.
    epoll: Option<OwnedFd>,
    /// Peers for whom a link has been asked: once each, and again after one that has broken.
    backoffs: HashMap<Tid, Backoff>,
    /// Requests for links that have not been answered.
    pub open_requests: usize,
    route: i32,
    arrived: VecDeque<LinkMessage>,
    /// What the rest of the task has not heard yet.
    events: Vec<RouteEvent>,
    /// There are links, or there is something to be heard.
    active: bool,
    polls: u32,
    /// When links were last looked at that carry nothing.
    stalls_checked: Option<Instant>,
    /// The end of this one's link comes before all that the daemon still has to say.
    pub draining: Option<Tid>,
    links_max: usize,
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

    fn position(&self, peer: Tid) -> Result<usize, usize> {
        self.links.binary_search_by_key(&peer, |link| link.peer)
    }

    fn find(&mut self, peer: Tid) -> Option<&mut DirectLink> {
        let at = self.position(peer).ok()?;
        Some(&mut self.links[at])
    }

    /// Whether messages to that task go on a link.
    pub fn carries(&self, to: Tid) -> bool {
        self.position(to).is_ok_and(|at| self.links[at].carries)
    }

    /// Whether a link may come to be used when the task polls.
    pub fn has_pending(&self) -> bool {
        self.open_requests > 0 || self.links.iter().any(DirectLink::has_pending)
    }

    /// What sleepers watch. Made when it is needed.
    pub fn descriptor(&mut self) -> Option<BorrowedFd<'_>> {
        if self.epoll.is_none() {
            self.epoll = epoll::create(CreateFlags::CLOEXEC).ok().and_then(|epoll| above_standard(epoll).ok());
        }
        self.epoll.as_ref().map(|epoll| epoll.as_fd())
    }

    /// The same, where there are links.
    pub fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().map(|epoll| epoll.as_fd())
    }

    /// So many links and no more.
    fn with_limit(links_max: usize) -> DirectLinks {
        DirectLinks {
            links: Vec::new(),
            epoll: None,
            backoffs: HashMap::new(),
            open_requests: 0,
            route: 0,
            arrived: VecDeque::new(),
            events: Vec::new(),
            active: false,
            polls: 0,
            stalls_checked: None,
            draining: None,
            links_max,
        }
    }

    /// Whether one more can be asked for.
    fn may_request(&self) -> bool {
        self.links.len() + self.open_requests < self.links_max
    }

    /// Whether one more can be received.
    fn has_room(&self) -> bool {
        self.links.len() < self.links_max
    }

    /// Has the socket watched for what matters now.
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
            // A socket on which nothing is waited for would still tell of its end, again and again.
            let _ = epoll::delete(epoll, link.fd());
            if !flags.is_empty() {
                let _ = epoll::add(epoll, link.fd(), data, flags);
            }
        }
    }

    /// Takes what has come on one link; gives it up when it has ended.
    fn poll_link(&mut self, at: usize, wanted: Option<&mut PostedReceive<'_>>) -> usize {
        let link = &mut self.links[at];
        let peer = link.peer;
        let mut outcome = ReadOutcome::default();
        let result = link.read(&mut self.arrived, wanted, &mut outcome);
        if outcome.usable {
            self.events.push(RouteEvent::Usable(peer, link.fd().as_raw_fd()));
        }
        match result {
            Ok(()) => self.update_interest(at),
            Err(_) => self.on_read_end(at),
        }
        outcome.messages
    }

    /// A message that was read from a link is in the receiver's hands.
    fn count_received(&mut self, state: &mut State, arrived: &LinkMessage) {
        match self.position(arrived.peer) {
            Ok(at) => self.links[at].count_received(arrived.body.len()),
            Err(_) => {
                if let Some(received) = state.route_switches.received.get(&(arrived.peer.0 as i32)) {
                    received.count.set(received.count.get().wrapping_add(1));
                }
            }
        }
    }

    /// Nothing more comes on the link.
    fn on_read_end(&mut self, at: usize) {
        let link = &mut self.links[at];
        let peer = link.peer;
        link.read_closed = true;
        if !link.falling_back && (link.has_ended() || !link.is_established()) {
            return self.remove(at);
        }
        link.falling_back = true;
        if self.draining == Some(peer) {
            self.draining = None;
        }
        self.update_interest(at);
    }

    /// The task at the other side has ended, or the link never came to be.
    fn remove(&mut self, at: usize) {
        let peer = self.links[at].peer;
        match self.links[at].is_established() {
            true => self.events.push(RouteEvent::Dead(peer)),
            false => {
                self.on_break(peer, false);
                self.events.push(RouteEvent::Unmade(peer));
            }
        }
        self.close_link(at);
    }

    /// Lets go of the link.
    fn close_link(&mut self, at: usize) {
        let link = self.links.remove(at);
        if let (Some(epoll), false) = (&self.epoll, link.watched.is_empty()) {
            let _ = epoll::delete(epoll, link.fd());
        }
        if self.draining == Some(link.peer) {
            self.draining = None;
        }
        link.shut_down();
    }

    /// The links that want to be looked at.
    fn ready(&self, all: bool) -> Vec<Tid> {
        let epoll = match &self.epoll {
            Some(epoll) if !all && self.links.len() > READ_UNASKED_MAX => epoll,
            _ => return self.links.iter().map(|link| link.peer).collect(),
        };
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 16];
        let count = epoll::wait(epoll, &mut events[..], Some(&Timespec::default())).unwrap_or(0);
        let ready = events[..count].iter().map(|event| Tid(event.data.u64() as u32));
        let unfinished = self.links.iter().filter(|link| link.has_more).map(|link| link.peer);
        ready.chain(unfinished).collect()
    }

    /// Takes what has come on the links.
    fn poll_links(&mut self, all: bool) -> usize {
        let mut count = 0;
        for peer in self.ready(all) {
            if let Ok(at) = self.position(peer) {
                count += self.poll_link(at, None);
            }
        }
        count
    }

    /// Waits until that link takes more, and takes what comes on all of them meanwhile: the other side
    /// may wait for just that.
    fn wait_for_room(&mut self, peer: Option<Tid>, time: Duration) {
        let mut list: Vec<PollFd<'_>> = Vec::with_capacity(self.links.len());
        for link in &self.links {
            let mut flags = link.interest();
            flags.set(PollFlags::OUT, Some(link.peer) == peer || !link.is_flushed());
            list.push(PollFd::from_borrowed_fd(link.fd(), flags));
        }
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        // CallerState or not, the caller polls again.
        let _ = rustix::event::poll(&mut list, Some(&timeout));
        let readable: Vec<Tid> = std::iter::zip(&self.links, &list)
            .filter(|(_, fd)| fd.revents().intersects(!PollFlags::OUT))
            .map(|(link, _)| link.peer)
            .collect();
        for peer in readable {
            if let Ok(at) = self.position(peer) {
                self.poll_link(at, None);
            }
        }
    }

    /// Sends a message on a link, or leaves it to it.
    pub fn send(&mut self, to: Tid, meta: Meta, body: Body<'_>) -> Result<(), Code> {
        let mut copy = match self.find(to) {
            // Who does not read gets as much as there is memory for.
            Some(link) if link.is_blocked() && !link.queue.has_room(body.len()) => return Err(Code::NoMem),
            Some(link) => QueuedBody::reserve(body, &mut link.queue.pool)?,
            // An end that is gone takes everything: so has its task.
            None => return Ok(()),
        };
        let mut since = None;
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
            } else if link.is_blocked() || since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                break false;
            } else {
                self.wait_for_room(Some(to), PATIENCE);
            }
        };
        let Ok(at) = self.position(to) else { return Ok(()) };
        let lent = written && matches!(body, Body::Bytes(bytes) if bytes.len() >= LENT_BYTES_MIN);
        if !lent {
            copy.fill(body);
        }
        self.links[at].enqueue(QueuedMessage { meta, body: copy, length: body.len() }, written);
        match (lent, written) {
            (true, _) => self.wait_for_acknowledgement(to, body),
            (false, true) if self.links[at].should_poll() => drop(self.poll_link(at, None)),
            (false, true) => {}
            (false, false) => self.update_interest(at),
        }
        Ok(())
    }

    /// Waits as long as the other side takes the last message, of which there is no copy. What it has not received then is
    /// copied.
    fn wait_for_acknowledgement(&mut self, to: Tid, body: Body<'_>) {
        let Some(number) = self.find(to).map(|link| link.queue.sent_count()) else { return };
        let (mut since, mut before) = (Instant::now(), None);
        loop {
            let Some(link) = self.find(to) else { return };
            link.flush();
            if link.queue.acknowledged() == number {
                return;
            }
            let progress = (link.progress(), link.carried().acknowledged);
            if before != Some(progress) {
                (since, before) = (Instant::now(), Some(progress));
            }
            if link.is_send_closed() || since.elapsed() >= PATIENCE {
                if let Some(message) = link.queue.last() {
                    message.body.fill(body);
                }
                return;
            }
            self.wait_for_room(None, PATIENCE / 4);
        }
    }
}

/// What the rest of the task has to know.
enum RouteEvent {
    /// The link to that peer can be used; its descriptor.
    Usable(Tid, i32),
    /// It is not used any more.
    Ended(Tid),
    /// Nor will it be: the peer has ended.
    Dead(Tid),
    /// The link never came to be.
    Unmade(Tid),
}

impl DirectLinks {
    /// `PvmRoute` has been set. Gives what the daemon has to know, if it has to.
    pub fn set_route(&mut self, route: i32) -> Option<Request> {
        let before = std::mem::replace(&mut self.route, route);
        let changed = (before == DONT_ROUTE) != (route == DONT_ROUTE);
        changed.then_some(Request::AllowDirect(route != DONT_ROUTE))
    }

    /// A message for which somebody waits goes straight to its place, if it is the next to come.
    pub fn receive_posted(&mut self, wanted: &mut PostedReceive<'_>) {
        for peer in self.ready(false) {
            let Ok(at) = self.position(peer) else { continue };
            let first = self.arrived.is_empty();
            self.poll_link(at, first.then_some(&mut *wanted));
            if wanted.found.is_some() {
                return;
            }
        }
    }
}

impl Member {
    /// Whether a link is wanted to a task to which much may go, and has not been asked for.
    pub(crate) fn needs_direct_link(&self, to: Tid) -> bool {
        let wanted =
            self.direct.route == ROUTE_DIRECT && self.direct.backoffs.get(&to).is_none_or(Backoff::may_request);
        wanted && self.direct.position(to).is_err()
    }

    /// Has the link made that is lacking. Once a task: where there can be none the default route stays.
    pub(crate) fn request_direct_link(&mut self, to: Tid) {
        self.direct.backoffs.entry(to).or_default().requested();
        if self.direct.may_request() && self.request(Request::Direct(to), Purpose::DirectLink(to)).is_ok() {
            self.direct.open_requests += 1;
        }
    }

    /// The daemon has brought this task together with another.
    pub(crate) fn on_direct_link(&mut self, state: &mut State, direct: &Direct, descriptors: Vec<OwnedFd>) {
        let Ok([socket]) = <[OwnedFd; 1]>::try_from(descriptors) else { return };
        let peer = direct.peer;
        // One that stood before may have been given up by the other side, or never have come to be.
        self.poll_default_route(state);
        self.deliver_from_links(state);
        let stands = state.route_switches.received.get(&(peer.0 as i32)).is_some_and(|received| !received.ended);
        let open = self.direct.has_room() && self.direct.route != DONT_ROUTE && self.direct.descriptor().is_some();
        let at = self.direct.position(peer).err().filter(|_| open && !stands);
        let kept = at.and_then(|at| Some((at, socket.try_clone().ok()?)));
        let made = kept.and_then(|(at, socket)| Some((at, DirectLink::new(direct, socket).ok()?)));
        let Some((at, link)) = made else {
            // The other side, and both daemons, hear that this one is not received.
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
            return;
        };
        state
            .route_switches
            .received
            .insert(peer.0 as i32, ReceivedOnLink { count: link.received_count(), ended: false });
        self.direct.links.insert(at, link);
        self.direct.active = true;
        self.parker.forget_descriptors();
        self.direct.poll_link(at, None);
        self.deliver_from_links(state);
    }

    /// Takes what has come on the links, `count` messages having come otherwise.
    #[cold]
    #[inline(never)]
    pub(crate) fn progress_direct_links(&mut self, state: &mut State, count: usize) -> usize {
        self.handle_route_switches(state);
        self.direct.polls = self.direct.polls.wrapping_add(1);
        let sleepy = self.endpoint.is_napping();
        if count == 0 || sleepy || self.direct.polls % BUSY_LOOKS == 0 {
            self.direct.poll_links(sleepy);
        }
        if sleepy || self.direct.polls % STALL_LOOKS == 0 {
            self.direct.close_stalled();
        }
        self.deliver_from_links(state)
    }

    /// What has come by the default route may have been the last to come that way.
    pub(crate) fn handle_route_switches(&mut self, state: &mut State) {
        for turn in std::mem::take(&mut state.route_switches.pending) {
            match turn {
                RouteSwitch::ToLink(peer) => {
                    if let Ok(at) = self.direct.position(peer) {
                        self.direct.links[at].on_route_switch();
                        self.direct.update_interest(at);
                    }
                }
                RouteSwitch::ToDefault(peer, answered) => self.on_peer_fallback(peer, answered),
            }
        }
    }

    /// Does what is to be done after links were looked at. Gives how many messages came.
    pub(crate) fn deliver_from_links(&mut self, state: &mut State) -> usize {
        // What has been read from a link and not been counted comes again once the other side has gone back.
        self.handle_route_switches(state);
        let own = self.tid.0 as i32;
        let mut count = 0;
        while let Some(arrived) = self.direct.arrived.pop_front() {
            self.direct.count_received(state, &arrived);
            state.on_message_bytes(arrived.envelope(own), arrived.body);
            count += 1;
        }
        self.switch_routes();
        self.fall_back();
        for event in std::mem::take(&mut self.direct.events) {
            match event {
                RouteEvent::Usable(peer, descriptor) => state.route_changed(peer, Some(descriptor)),
                RouteEvent::Ended(peer) => state.route_changed(peer, None),
                RouteEvent::Dead(peer) => {
                    state.route_changed(peer, None);
                    if let Some(received) = state.route_switches.received.get_mut(&(peer.0 as i32)) {
                        received.ended = true;
                    }
                }
                RouteEvent::Unmade(peer) => {
                    state.route_switches.received.remove(&(peer.0 as i32));
                }
            }
            count += 1;
        }
        self.direct.active = !self.direct.links.is_empty();
        count
    }

    /// Tells those who read their links that all comes there from now on.
    fn switch_routes(&mut self) {
        let turning = self.direct.links.iter().filter(|link| link.may_switch()).map(|link| link.peer);
        for peer in turning.collect::<Vec<Tid>>() {
            if self.send_route_switch(peer) {
                if let Some(link) = self.direct.find(peer) {
                    link.carries = true;
                }
            }
        }
    }

    /// The last message to that peer on the default route, if it can go now.
    fn send_route_switch(&mut self, peer: Tid) -> bool {
        let daemon = self.tid.host();
        if !self.endpoint.is_connected(daemon.0) {
            self.introduce(daemon);
            return false;
        }
        let mut meta = [SYSCTX_TC, TC_ROUTE_SWITCH, 0, ENC_XDR, OWN_DSIG, 0].map(|word| word as u32);
        meta[FAR] = peer.0;
        let sent = self.endpoint.send_bytes(daemon.0, meta, &[]);
        self.finish_send(daemon, sent).is_ok()
    }

    /// Sends a message on a link; at once by the default route where the link breaks.
    pub(crate) fn send_direct(&mut self, to: Tid, meta: Meta, body: Body<'_>) -> Result<(), Code> {
        self.direct.send(to, meta, body)?;
        if self.direct.find(to).is_some_and(|link| link.is_send_closed()) {
            self.fall_back();
        }
        Ok(())
    }

    /// A task of another host has ended. What it sent last may still be on its way.
    pub(crate) fn on_peer_exit(&mut self, state: &mut State, peer: Tid) {
        self.handle_route_switches(state);
        self.direct.backoffs.remove(&peer);
        if let Ok(at) = self.direct.position(peer) {
            match self.direct.links[at].is_reading() {
                true => {
                    self.direct.draining = Some(peer);
                    self.direct.poll_link(at, None);
                }
                // The turn was lost with a host, and something before it may have been; or the link broke.
                false => self.direct.remove(at),
            }
        }
        state.route_switches.received.remove(&(peer.0 as i32));
        state.handlers.forget_repeats(peer.0 as i32);
        self.deliver_from_links(state);
    }
}

/// A body as it is sent.
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
    use crate::{Environment, Task};
    use pvm_core::proto::{ToDaemon, ToTask, TraceSettings, Welcome};
    use pvm_fmp::ports::PortTable;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    /// A task that has set `PvmRouteDirect`, and its daemon's side.
    fn member() -> (Task, pvm_link::Link) {
        let (link, mut daemon) = pvm_link::Link::pair().unwrap();
        let (own, tid) = (TraceSettings::default(), Tid(0x40001));
        let welcome = Welcome { tid, parent: 0, dsig: 1, own, resource_manager: Tid::NONE };
        let ports = PortTable::new(16).unwrap();
        daemon.send_to_task(&ToTask::Welcome(welcome), &[ports.descriptor()]).unwrap();
        let environment = Environment::from_lookup(|_| None);
        let (mut member, _) = Member::enter(link, &environment, None).ok().unwrap();
        member.direct.set_route(ROUTE_DIRECT);
        let mut task = Task::new(&environment);
        task.member = Some(member);
        (task, daemon)
    }

    /// For which links a daemon has been asked.
    fn asked(daemon: &mut pvm_link::Link) -> Vec<Tid> {
        let mut all = Vec::new();
        while let Some((frame, _)) = daemon.receive_from_task().unwrap() {
            if let ToDaemon::Request { request: Request::Direct(peer), .. } = frame {
                all.push(peer);
            }
        }
        all
    }

    #[test]
    fn a_link_that_has_come_unread_is_not_asked_for_again() {
        let (mut task, mut daemon) = member();
        let [one, two] = [Tid(0x80001), Tid(0x80002)];
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, _far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let direct = Direct { peer: one, calls: true, secret: None };
        daemon.send_to_task(&ToTask::Direct(direct), &[near.as_fd()]).unwrap();
        task.member.as_mut().unwrap().cancel_socket_poll();
        for peer in [one, two, two, one] {
            task.update_route(peer);
        }
        assert_eq!(asked(&mut daemon), [two]);
    }

    #[test]
    fn a_task_has_so_many_direct_links_and_no_more() {
        let mut directs = DirectLinks::with_limit(2);
        directs.open_requests = 1;
        assert!(directs.may_request() && directs.has_room());
        for number in 1..=2 {
            let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
            let (socket, _) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
            let direct = Direct { peer: Tid(0x80000 + number), calls: true, secret: None };
            directs.links.push(DirectLink::new(&direct, socket).unwrap());
            assert!(!directs.may_request());
        }
        assert!(!directs.has_room());
        assert!(DirectLinks::default().links_max <= LINKS_MAX);
    }
}
