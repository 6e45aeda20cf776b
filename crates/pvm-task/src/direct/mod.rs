//! Direct links to tasks of other hosts (`PvmRoute`, contract 2.9).
//!
//! The daemons bring two tasks together (`pvm_core::machine`, `direct`). A link is used as soon as
//! both tasks have it; until then, and where there is none, messages take the default route. A send
//! writes to the socket, and waits only as long as the other side takes what is sent; the rest is
//! kept and goes out whenever the task is in the library. What has been sent is kept too until the
//! other side's library has it, so that a link that breaks loses nothing.
pub(crate) mod back;
pub(crate) mod end;
pub(crate) mod kept;
mod stall;

use crate::control::{Fate, Member};
use crate::message::OWN_DSIG;
use crate::system::TC_TURN;
use crate::task::State;
use back::{Again, Taken, Turn};
pub(crate) use end::Wanted;
use end::{Arrived, End, News};
use kept::{Copy, Message};
use pvm_core::codes::{Code, ENC_XDR, SYSCTX_TC};
use pvm_core::proto::{Direct, Request};
use pvm_core::tid::Tid;
use pvm_fmp::descriptor::above_standard;
use pvm_fmp::{Block, FAR, Meta};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::Shutdown;
use rustix::process::Resource;
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

/// So many times of many that links are looked at one looks for those that have stalled too.
const STALL_LOOKS: u32 = 1024;
/// From here on no copy is made of what is the caller's while the other side goes on taking it: most of it is there
/// before all of it could be acknowledged.
const LENT_BYTES_MIN: usize = 8 << 20;

/// `PvmRoute` as programs set it.
const DONT_ROUTE: i32 = 1;
const ROUTE_DIRECT: i32 = 3;

/// The direct links of a task.
pub(crate) struct Directs {
    /// By tid.
    ends: Vec<End>,
    /// All sockets, for who sleeps.
    epoll: Option<OwnedFd>,
    /// Peers for whom a link has been asked: once each, and again after one that has broken.
    asked: HashMap<Tid, Again>,
    /// Requests for links that have not been answered.
    pub open_asks: usize,
    route: i32,
    arrived: VecDeque<Arrived>,
    /// What the rest of the task has not heard yet.
    events: Vec<Happened>,
    /// There are links, or there is something to be heard.
    active: bool,
    looks: u32,
    /// When links were last looked at that carry nothing.
    stalls_seen: Option<Instant>,
    /// The end of this one's link comes before all that the daemon still has to say.
    pub waits_for: Option<Tid>,
    links_max: usize,
}

impl Default for Directs {
    fn default() -> Directs {
        let limit = rustix::process::getrlimit(Resource::Nofile).current;
        let links_max = limit.map_or(LINKS_MAX, |limit| (limit / DESCRIPTOR_SHARE) as usize).min(LINKS_MAX);
        Directs::within(links_max)
    }
}

impl Directs {
    #[inline(always)]
    pub fn is_active(&self) -> bool {
        self.active
    }

    fn place(&self, peer: Tid) -> Result<usize, usize> {
        self.ends.binary_search_by_key(&peer, |end| end.peer)
    }

    fn find(&mut self, peer: Tid) -> Option<&mut End> {
        let place = self.place(peer).ok()?;
        Some(&mut self.ends[place])
    }

    /// Whether messages to that task go on a link.
    pub fn carries(&self, to: Tid) -> bool {
        self.place(to).is_ok_and(|place| self.ends[place].carries)
    }

    /// Whether a link may come to be used when the task looks.
    pub fn is_unsettled(&self) -> bool {
        self.open_asks > 0 || self.ends.iter().any(End::is_unsettled)
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
    fn within(links_max: usize) -> Directs {
        Directs {
            ends: Vec::new(),
            epoll: None,
            asked: HashMap::new(),
            open_asks: 0,
            route: 0,
            arrived: VecDeque::new(),
            events: Vec::new(),
            active: false,
            looks: 0,
            stalls_seen: None,
            waits_for: None,
            links_max,
        }
    }

    /// Whether one more can be asked for.
    fn may_ask(&self) -> bool {
        self.ends.len() + self.open_asks < self.links_max
    }

    /// Whether one more can be taken.
    fn has_room(&self) -> bool {
        self.ends.len() < self.links_max
    }

    /// Has the socket watched for what matters now.
    fn watch(&mut self, place: usize) {
        let Some(epoll) = &self.epoll else { return };
        let end = &mut self.ends[place];
        let interest = end.interest();
        if interest != end.watched {
            end.watched = interest;
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, interest.contains(PollFlags::IN));
            flags.set(EventFlags::OUT, interest.contains(PollFlags::OUT));
            let data = EventData::new_u64(u64::from(end.peer.0));
            // A socket on which nothing is waited for would still tell of its end, again and again.
            let _ = epoll::delete(epoll, end.fd());
            if !flags.is_empty() {
                let _ = epoll::add(epoll, end.fd(), data, flags);
            }
        }
    }

    /// Takes what has come on one link; gives it up when it has ended.
    fn look(&mut self, place: usize, wanted: Option<&mut Wanted<'_>>) -> usize {
        let end = &mut self.ends[place];
        let peer = end.peer;
        let mut news = News::default();
        let result = end.read(&mut self.arrived, wanted, &mut news);
        if news.usable {
            self.events.push(Happened::Usable(peer, end.fd().as_raw_fd()));
        }
        match result {
            Ok(()) => self.watch(place),
            Err(_) => self.end_reading(place),
        }
        news.messages
    }

    /// A message that was read from a link is in the receiver's hands.
    fn took(&mut self, state: &mut State, arrived: &Arrived) {
        match self.place(arrived.peer) {
            Ok(place) => self.ends[place].took(arrived.body.len()),
            Err(_) => {
                if let Some(taken) = state.turns.links.get(&(arrived.peer.0 as i32)) {
                    taken.count.set(taken.count.get().wrapping_add(1));
                }
            }
        }
    }

    /// Nothing more comes on the link.
    fn end_reading(&mut self, place: usize) {
        let end = &mut self.ends[place];
        let peer = end.peer;
        end.closed = true;
        if !end.returns && (end.has_ended() || !end.is_mutual()) {
            return self.remove(place);
        }
        end.returns = true;
        if self.waits_for == Some(peer) {
            self.waits_for = None;
        }
        self.watch(place);
    }

    /// The task at the other side has ended, or the link never came to be.
    fn remove(&mut self, place: usize) {
        let peer = self.ends[place].peer;
        match self.ends[place].is_mutual() {
            true => self.events.push(Happened::Dead(peer)),
            false => {
                self.note_break(peer, false);
                self.events.push(Happened::Unmade(peer));
            }
        }
        self.drop_end(place);
    }

    /// Lets go of the link.
    fn drop_end(&mut self, place: usize) {
        let end = self.ends.remove(place);
        if let (Some(epoll), false) = (&self.epoll, end.watched.is_empty()) {
            let _ = epoll::delete(epoll, end.fd());
        }
        if self.waits_for == Some(end.peer) {
            self.waits_for = None;
        }
        end.shut();
    }

    /// The links that want to be looked at.
    fn ready(&self, all: bool) -> Vec<Tid> {
        let epoll = match &self.epoll {
            Some(epoll) if !all && self.ends.len() > READ_UNASKED_MAX => epoll,
            _ => return self.ends.iter().map(|end| end.peer).collect(),
        };
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 16];
        let count = epoll::wait(epoll, &mut events[..], Some(&Timespec::default())).unwrap_or(0);
        let told = events[..count].iter().map(|event| Tid(event.data.u64() as u32));
        let unfinished = self.ends.iter().filter(|end| end.unfinished).map(|end| end.peer);
        told.chain(unfinished).collect()
    }

    /// Takes what has come on the links.
    fn look_at_all(&mut self, all: bool) -> usize {
        let mut count = 0;
        for peer in self.ready(all) {
            if let Ok(place) = self.place(peer) {
                count += self.look(place, None);
            }
        }
        count
    }

    /// Waits until that link takes more, and takes what comes on all of them meanwhile: the other side
    /// may wait for just that.
    fn wait_for_room(&mut self, peer: Option<Tid>, time: Duration) {
        let mut list: Vec<PollFd<'_>> = Vec::with_capacity(self.ends.len());
        for end in &self.ends {
            let mut flags = end.interest();
            flags.set(PollFlags::OUT, Some(end.peer) == peer || !end.is_flushed());
            list.push(PollFd::from_borrowed_fd(end.fd(), flags));
        }
        let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        // Interrupted or not, the caller looks again.
        let _ = rustix::event::poll(&mut list, Some(&timeout));
        let readable: Vec<Tid> = std::iter::zip(&self.ends, &list)
            .filter(|(_, fd)| fd.revents().intersects(!PollFlags::OUT))
            .map(|(end, _)| end.peer)
            .collect();
        for peer in readable {
            if let Ok(place) = self.place(peer) {
                self.look(place, None);
            }
        }
    }

    /// Sends a message on a link, or leaves it to it.
    pub fn send(&mut self, to: Tid, meta: Meta, body: Body<'_>) -> Result<(), Code> {
        let mut copy = match self.find(to) {
            // Who does not read gets as much as there is memory for.
            Some(end) if end.is_stalled() && !end.kept.has_room(body.len()) => return Err(Code::NoMem),
            Some(end) => Copy::reserve(body, &mut end.kept.spares)?,
            // An end that is gone takes everything: so has its task.
            None => return Ok(()),
        };
        let mut since = None;
        let written = loop {
            let Some(end) = self.find(to) else { return Ok(()) };
            let before = end.progress();
            end.flush();
            if end.is_silent() {
                break false;
            }
            if end.kept.all_written() && end.write(meta, body) {
                break true;
            }
            if end.progress() != before {
                since = None;
            } else if end.is_stalled() || since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                break false;
            } else {
                self.wait_for_room(Some(to), PATIENCE);
            }
        };
        let Ok(place) = self.place(to) else { return Ok(()) };
        let lent = written && matches!(body, Body::Bytes(bytes) if bytes.len() >= LENT_BYTES_MIN);
        if !lent {
            copy.fill(body);
        }
        self.ends[place].keep(Message { meta, body: copy, length: body.len() }, written);
        match (lent, written) {
            (true, _) => self.wait_for_taker(to, body),
            (false, true) if self.ends[place].keeps_much() => drop(self.look(place, None)),
            (false, true) => {}
            (false, false) => self.watch(place),
        }
        Ok(())
    }

    /// Waits as long as the other side takes the last message, of which there is no copy. What it has not taken then is
    /// copied.
    fn wait_for_taker(&mut self, to: Tid, body: Body<'_>) {
        let Some(number) = self.find(to).map(|end| end.kept.number()) else { return };
        let (mut since, mut before) = (Instant::now(), None);
        loop {
            let Some(end) = self.find(to) else { return };
            end.flush();
            if end.kept.acknowledged() == number {
                return;
            }
            let progress = (end.progress(), end.carried().acknowledged);
            if before != Some(progress) {
                (since, before) = (Instant::now(), Some(progress));
            }
            if end.is_silent() || since.elapsed() >= PATIENCE {
                if let Some(message) = end.kept.last() {
                    message.body.fill(body);
                }
                return;
            }
            self.wait_for_room(None, PATIENCE / 4);
        }
    }
}

/// What the rest of the task has to know.
enum Happened {
    /// The link to that peer can be used; its descriptor.
    Usable(Tid, i32),
    /// It is not used any more.
    Ended(Tid),
    /// Nor will it be: the peer has ended.
    Dead(Tid),
    /// The link never came to be.
    Unmade(Tid),
}

impl Directs {
    /// `PvmRoute` has been set. Gives what the daemon has to know, if it has to.
    pub fn set_route(&mut self, route: i32) -> Option<Request> {
        let before = std::mem::replace(&mut self.route, route);
        let changed = (before == DONT_ROUTE) != (route == DONT_ROUTE);
        changed.then_some(Request::AllowDirect(route != DONT_ROUTE))
    }

    /// A message for which somebody waits goes straight to its place, if it is the next to come.
    pub fn receive_straight(&mut self, wanted: &mut Wanted<'_>) {
        for peer in self.ready(false) {
            let Ok(place) = self.place(peer) else { continue };
            let first = self.arrived.is_empty();
            self.look(place, first.then_some(&mut *wanted));
            if wanted.found.is_some() {
                return;
            }
        }
    }
}

impl Member {
    /// Whether a link is wanted to a task to which much may go, and has not been asked for.
    pub(crate) fn lacks_direct(&self, to: Tid) -> bool {
        let wanted = self.direct.route == ROUTE_DIRECT && self.direct.asked.get(&to).is_none_or(Again::may_ask);
        wanted && self.direct.place(to).is_err()
    }

    /// Has the link made that is lacking. Once a task: where there can be none the default route stays.
    pub(crate) fn want_direct(&mut self, to: Tid) {
        self.direct.asked.entry(to).or_default().asked();
        if self.direct.may_ask() && self.request(Request::Direct(to), Fate::Direct(to)).is_ok() {
            self.direct.open_asks += 1;
        }
    }

    /// The daemon has brought this task together with another.
    pub(crate) fn add_direct(&mut self, state: &mut State, direct: &Direct, descriptors: Vec<OwnedFd>) {
        let Ok([socket]) = <[OwnedFd; 1]>::try_from(descriptors) else { return };
        let peer = direct.peer;
        // One that stood before may have been given up by the other side, or never have come to be.
        self.hear_turns(state);
        self.settle_directs(state);
        let stands = state.turns.links.get(&(peer.0 as i32)).is_some_and(|taken| !taken.ended);
        let open = self.direct.has_room() && self.direct.route != DONT_ROUTE && self.direct.descriptor().is_some();
        let place = self.direct.place(peer).err().filter(|_| open && !stands);
        let kept = place.and_then(|place| Some((place, socket.try_clone().ok()?)));
        let made = kept.and_then(|(place, socket)| Some((place, End::new(direct, socket).ok()?)));
        let Some((place, end)) = made else {
            // The other side, and both daemons, hear that this one is not taken.
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
            return;
        };
        state.turns.links.insert(peer.0 as i32, Taken { count: end.taken(), ended: false });
        self.direct.ends.insert(place, end);
        self.direct.active = true;
        self.bed.clear();
        self.direct.look(place, None);
        self.settle_directs(state);
    }

    /// Takes what has come on the links, `count` messages having come otherwise.
    #[cold]
    #[inline(never)]
    pub(crate) fn progress_direct(&mut self, state: &mut State, count: usize) -> usize {
        self.heed_turns(state);
        self.direct.looks = self.direct.looks.wrapping_add(1);
        let sleepy = self.endpoint.is_parked();
        if count == 0 || sleepy || self.direct.looks % BUSY_LOOKS == 0 {
            self.direct.look_at_all(sleepy);
        }
        if sleepy || self.direct.looks % STALL_LOOKS == 0 {
            self.direct.look_for_stalls();
        }
        self.settle_directs(state)
    }

    /// What has come by the default route may have been the last to come that way.
    pub(crate) fn heed_turns(&mut self, state: &mut State) {
        for turn in std::mem::take(&mut state.turns.said) {
            match turn {
                Turn::Onto(peer) => {
                    if let Ok(place) = self.direct.place(peer) {
                        self.direct.ends[place].turn();
                        self.direct.watch(place);
                    }
                }
                Turn::Back(peer, answered) => self.heed_back(peer, answered),
            }
        }
    }

    /// Does what is to be done after links were looked at. Gives how many messages came.
    pub(crate) fn settle_directs(&mut self, state: &mut State) -> usize {
        // What has been read from a link and not been counted comes again once the other side has gone back.
        self.heed_turns(state);
        let own = self.tid.0 as i32;
        let mut count = 0;
        while let Some(arrived) = self.direct.arrived.pop_front() {
            self.direct.took(state, &arrived);
            state.arrived_bytes(arrived.envelope(own), arrived.body);
            count += 1;
        }
        self.take_turns();
        self.go_back();
        for event in std::mem::take(&mut self.direct.events) {
            match event {
                Happened::Usable(peer, descriptor) => state.route_changed(peer, Some(descriptor)),
                Happened::Ended(peer) => state.route_changed(peer, None),
                Happened::Dead(peer) => {
                    state.route_changed(peer, None);
                    if let Some(taken) = state.turns.links.get_mut(&(peer.0 as i32)) {
                        taken.ended = true;
                    }
                }
                Happened::Unmade(peer) => {
                    state.turns.links.remove(&(peer.0 as i32));
                }
            }
            count += 1;
        }
        self.direct.active = !self.direct.ends.is_empty();
        count
    }

    /// Tells those who read their links that all comes there from now on.
    fn take_turns(&mut self) {
        let turning = self.direct.ends.iter().filter(|end| end.may_turn()).map(|end| end.peer);
        for peer in turning.collect::<Vec<Tid>>() {
            if self.send_turn(peer) {
                if let Some(end) = self.direct.find(peer) {
                    end.carries = true;
                }
            }
        }
    }

    /// The last message to that peer on the default route, if it can go now.
    fn send_turn(&mut self, peer: Tid) -> bool {
        let daemon = self.tid.host();
        if !self.endpoint.is_connected(daemon.0) {
            self.introduce(daemon);
            return false;
        }
        let mut meta = [SYSCTX_TC, TC_TURN, 0, ENC_XDR, OWN_DSIG, 0].map(|word| word as u32);
        meta[FAR] = peer.0;
        let sent = self.endpoint.send_bytes(daemon.0, meta, &[]);
        self.conclude(daemon, sent).is_ok()
    }

    /// Sends a message on a link; at once by the default route where the link breaks.
    pub(crate) fn send_direct(&mut self, to: Tid, meta: Meta, body: Body<'_>) -> Result<(), Code> {
        self.direct.send(to, meta, body)?;
        if self.direct.find(to).is_some_and(|end| end.is_silent()) {
            self.go_back();
        }
        Ok(())
    }

    /// A task of another host has ended. What it sent last may still be on its way.
    pub(crate) fn peer_ended(&mut self, state: &mut State, peer: Tid) {
        self.heed_turns(state);
        self.direct.asked.remove(&peer);
        if let Ok(place) = self.direct.place(peer) {
            match self.direct.ends[place].is_read() {
                true => {
                    self.direct.waits_for = Some(peer);
                    self.direct.look(place, None);
                }
                // The turn was lost with a host, and something before it may have been; or the link broke.
                false => self.direct.remove(place),
            }
        }
        state.turns.links.remove(&(peer.0 as i32));
        state.handlers.forget_repeats(peer.0 as i32);
        self.settle_directs(state);
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
        task.member.as_mut().unwrap().look_at_socket = false;
        for peer in [one, two, two, one] {
            task.settle_route(peer);
        }
        assert_eq!(asked(&mut daemon), [two]);
    }

    #[test]
    fn a_task_has_so_many_direct_links_and_no_more() {
        let mut directs = Directs::within(2);
        directs.open_asks = 1;
        assert!(directs.may_ask() && directs.has_room());
        for number in 1..=2 {
            let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
            let (socket, _) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
            let direct = Direct { peer: Tid(0x80000 + number), calls: true, secret: None };
            directs.ends.push(End::new(&direct, socket).unwrap());
            assert!(!directs.may_ask());
        }
        assert!(!directs.has_room());
        assert!(Directs::default().links_max <= LINKS_MAX);
    }
}
