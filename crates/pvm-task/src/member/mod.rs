//! The task's membership of the machine: its socket to the daemon, its endpoint in shared memory, its links to tasks of
//! other hosts.
mod channel;
mod company;
mod direct;
mod fabric;
mod idleness;
mod multicast;
mod route;
mod sleep;

pub(crate) use company::Company;
pub(crate) use multicast::Receivers;
pub(crate) use route::Route;
pub(crate) use sleep::SLEEP_MAX;
pub use sleep::{Sleep, WokenBy};

use crate::clock;
use crate::direct::DirectLinks;
use crate::envelope::Envelope;
use crate::fabric::route::FabricRoute;
use crate::groups::{Groups, HeardReleases};
use crate::introductions::Introductions;
use crate::requests::{Purpose, Requests};
use crate::state::State;
use crate::{EnrollError, Environment};
use idleness::Idleness;
use pvm_core::channel::{LaneKind, Peers};
use pvm_core::codes::Code;
use pvm_core::proto::{ByteBuf, Hello, Reply, Request, ToDaemon, ToTask, TraceSettings, VERSION, Welcome};
use pvm_core::tid::Tid;
use pvm_descriptor::Floor;
use pvm_fmp::ports::PortView;
use pvm_fmp::{Endpoint, Meta};
use pvm_link::rendezvous::FindError;
use pvm_link::{ControlError, ControlSocket, DESCRIPTOR_PAUSE};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;
use sleep::Parker;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a task waits for the daemon's welcome.
const WELCOME_WAIT_MAX: Duration = Duration::from_secs(30);
/// The longest time that a leaving task waits for the socket to take the task's last frames.
const GOODBYE_WAIT_MAX: Duration = Duration::from_secs(5);
/// The most frames that one poll handles. Without a limit, a task whose children print without end would never return
/// from the poll to show their output.
const FRAMES_IN_TURN_MAX: usize = 256;
/// After this number of polls without frames, the socket is read in any case: only a read shows that the daemon has
/// died.
const QUIET_POLLS_MAX: u32 = 4096;

/// The state that decides when the task reads the socket to the daemon. The port table counts the frames that the
/// daemon has sent, so most polls compare this count and make no system call.
struct SocketPolls {
    /// How many frames the port table had counted at the last read.
    frames_seen: u32,
    /// Polls since the last read.
    quiet: u32,
    /// Whether the next poll reads the socket in any case.
    requested: bool,
    /// The number of the last frame before which all queues have been read.
    queues_read: u32,
}

/// A task's membership of the machine.
pub(crate) struct Member {
    pub tid: Tid,
    pub parent: i32,
    pub dsig: i32,
    pub resource_manager: Tid,
    pub endpoint: Endpoint,
    /// `None` when the daemon is gone.
    pub daemon: Option<ControlSocket>,
    /// Why there is no connection.
    pub loss: Option<Loss>,
    /// Why the machine halts, as the daemon has said.
    pub halting: Option<String>,
    pub requests: Requests,
    pub introductions: Introductions,
    socket_polls: SocketPolls,
    /// Whether messages or frames have arrived since the task prepared to sleep; if so, more may be waiting.
    pub may_have_more: bool,
    /// The time since which nothing has arrived. Set only while a task with much free memory sleeps.
    pub idle_since: Option<Instant>,
    pub idleness: Idleness,
    /// Whether the endpoint announces to senders that this task waits in a one-call receive (`pvm_precv`).
    pub posted: bool,
    /// Whether this task has just sent a long message that the daemon must relay to another host.
    pub relay_pending: bool,
    pub company: Company,
    /// To which tasks of other hosts this task requests a lane, and when.
    pub peers: Peers,
    pub direct: DirectLinks,
    pub fabric: FabricRoute,
    pub parker: Parker,
    pub groups: Groups,
    pub releases: HeardReleases,
}

/// Why a task has no connection to its daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The daemon has ended or has closed the connection.
    DaemonGone,
    /// The program has closed descriptors of the library.
    DescriptorsClosed,
}

impl Member {
    /// Connects to the daemon and waits for its welcome.
    pub fn enroll(environment: &Environment, cookie: Option<u32>) -> Result<(Member, TraceSettings), EnrollError> {
        let _floor = Floor::occupy_standard();
        let socket = environment.places.connect().map_err(|error| match error {
            FindError::Absent => EnrollError::NoDaemon,
            error => EnrollError::Unreachable(error),
        })?;
        Member::enter(socket, environment, cookie)
    }

    /// Introduces the task to the daemon and waits for the welcome.
    pub fn enter(
        mut socket: ControlSocket,
        environment: &Environment,
        cookie: Option<u32>,
    ) -> Result<(Member, TraceSettings), EnrollError> {
        let mut endpoint = Endpoint::new().map_err(EnrollError::System)?;
        let descriptors = endpoint.descriptors().map_err(EnrollError::System)?;
        let (name, kind) = (ByteBuf::from(environment.name.clone()), environment.kind);
        let hello = ToDaemon::Hello(Hello { version: VERSION, pid: std::process::id(), cookie, name, kind });
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        socket.send_to_daemon(&hello, &borrowed).map_err(|_| EnrollError::Broken)?;
        let (welcome, descriptors) = wait_for_welcome(&mut socket)?;
        let mut descriptors = descriptors.into_iter();
        let ports = descriptors.next().ok_or(EnrollError::Broken)?;
        if let (Some(segment), Some(bell)) = (descriptors.next(), descriptors.next()) {
            endpoint = Endpoint::adopt(segment, bell).map_err(EnrollError::System)?;
        }
        endpoint.enrolled(welcome.tid.0, PortView::new(ports).map_err(EnrollError::System)?);
        // The welcome.
        endpoint.frame_taken();
        let member = Member {
            tid: welcome.tid,
            parent: welcome.parent,
            dsig: welcome.dsig,
            resource_manager: welcome.resource_manager,
            endpoint,
            daemon: Some(socket),
            loss: None,
            halting: None,
            requests: Requests::default(),
            introductions: Introductions::default(),
            socket_polls: SocketPolls { frames_seen: 0, quiet: 0, requested: true, queues_read: 0 },
            may_have_more: false,
            idle_since: None,
            idleness: Idleness::default(),
            posted: false,
            relay_pending: false,
            company: Company::new(welcome.order),
            peers: Peers::new(std::env::var("HPVM_DIRECT_AFTER").ok().as_deref()),
            direct: DirectLinks::default(),
            fabric: FabricRoute::new(&environment.fabric.or(&welcome.fabric)),
            parker: Parker::default(),
            groups: Groups::default(),
            releases: HeardReleases::default(),
        };
        Ok((member, welcome.own))
    }

    /// Tells the daemon that this process takes over its parent's task.
    pub fn inherit(&mut self) -> bool {
        let own = rustix::process::getpid();
        let Some(socket) = &mut self.daemon else { return false };
        let Ok(process) = rustix::process::pidfd_open(own, PidfdFlags::empty()) else { return false };
        if socket.send_to_daemon(&ToDaemon::TakeOver, &[process.as_fd()]).is_err() {
            return false;
        }
        self.endpoint.inherit();
        self.fabric.inherit(self.direct.watched());
        // The threads that slept belonged to the parent.
        self.parker = Parker::default();
        self.request_socket_poll();
        true
    }

    /// In a child of `fork()`, closes the child's copies only. The daemon notices the end of the parent once all copies are
    /// closed.
    pub fn abandon(&mut self) {
        drop(self.daemon.take());
        self.parker = Parker::default();
        drop(std::mem::take(&mut self.direct));
        self.fabric.abandon();
    }

    /// Leaves the machine. Messages that were sent before stay with their receivers.
    pub fn leave(mut self) -> Result<(), Code> {
        self.parker.wake();
        self.send(&ToDaemon::Bye);
        self.send_last_frames();
        self.daemon.take().map(drop).ok_or(Code::SysErr)
    }

    /// Waits until the socket has taken all frames. If a write fails, closes the connection.
    pub fn send_last_frames(&mut self) {
        let end = Instant::now() + GOODBYE_WAIT_MAX;
        while let Some(socket) = self.daemon.as_mut().filter(|socket| socket.wants_write() && Instant::now() < end) {
            let (events, time) = writable(socket, PollFlags::empty(), Duration::from_millis(100));
            ready(socket, events, time);
            if socket.flush().is_err() {
                self.lose_daemon();
            }
        }
    }

    // ----- sending

    /// Sends a frame. If the write fails, closes the connection. Returns `false` if the frame is too long.
    pub fn send(&mut self, frame: &ToDaemon) -> bool {
        let Some(socket) = &mut self.daemon else { return true };
        match socket.send_to_daemon(frame, &[]) {
            Ok(()) => true,
            Err(ControlError::TooLong) => false,
            Err(_) => {
                self.lose_daemon();
                true
            }
        }
    }

    /// Puts a message into the queue to a connected peer. If the peer sleeps and must be woken before the call ends,
    /// asks the daemon to ring the peer's doorbell.
    #[inline]
    pub fn send_bytes(&mut self, to: Tid, meta: Meta, body: &[u8]) -> Result<(), Code> {
        let (socket, mut lost) = (&mut self.daemon, false);
        let mut ring =
            || lost |= socket.as_mut().is_some_and(|socket| socket.send_to_daemon(&ToDaemon::Ring(to), &[]).is_err());
        let sent = self.endpoint.send_bytes_ringing(to.0, meta, body, &mut ring);
        if lost {
            self.lose_daemon();
            self.check_descriptors()?;
        }
        self.finish_send(to, sent)
    }

    /// Sends a request; returns its number.
    pub fn request(&mut self, request: Request, purpose: Purpose) -> Result<u32, Code> {
        self.leave_links_before(&request);
        let number = self.requests.next_number();
        if !self.send(&ToDaemon::Request { wait: number, request }) {
            return Err(Code::NoMem);
        }
        if self.daemon.is_none() {
            return Err(Code::SysErr);
        }
        self.requests.add(number, purpose);
        Ok(number)
    }

    /// Returns whether the program has closed descriptors without which the task cannot go on. This takes two system calls.
    pub fn has_closed_descriptors(&self) -> bool {
        self.endpoint.is_bell_closed() || self.daemon.as_ref().is_some_and(ControlSocket::is_closed)
    }

    /// Fails with `SysErr` if it is known that the program has closed descriptors: then the receiver of a message may not
    /// have been woken.
    pub fn check_descriptors(&self) -> Result<(), Code> {
        if self.loss == Some(Loss::DescriptorsClosed) { Err(Code::SysErr) } else { Ok(()) }
    }

    /// Handles the loss of the daemon: pending requests will not be answered.
    pub fn lose_daemon(&mut self) {
        if self.has_closed_descriptors() {
            self.loss = Some(Loss::DescriptorsClosed);
            // Its descriptors may be the program's by now, which the provider does not know.
            self.fabric.forget();
        }
        self.loss.get_or_insert(Loss::DaemonGone);
        self.daemon = None;
        self.endpoint.frames_ended();
        self.requests.on_daemon_lost();
        self.direct.open_requests = 0;
        self.fabric.forget_questions();
        self.parker.forget_descriptors();
    }

    // ----- receiving

    /// Takes messages out of shared memory and queues them.
    #[inline]
    pub fn poll(&mut self, state: &mut State) -> usize {
        self.endpoint.poll(state)
    }

    /// Returns whether the socket may have a frame. Makes no system call.
    #[inline]
    pub fn control_may_be_ready(&mut self) -> bool {
        let polls = &mut self.socket_polls;
        polls.quiet += 1;
        polls.requested
            || polls.quiet > QUIET_POLLS_MAX
            || self.endpoint.waits_for_frame()
            || self.frames() != self.socket_polls.frames_seen
    }

    /// Returns how many frames the port table had counted when the socket was last read.
    pub fn frames_seen(&self) -> u32 {
        self.socket_polls.frames_seen
    }

    /// Makes the next poll read the socket, whatever the port table says.
    pub fn request_socket_poll(&mut self) {
        self.socket_polls.requested = true;
    }

    /// Cancels a requested read of the socket. Used by tests that check which calls request a read.
    #[cfg(test)]
    pub fn cancel_socket_poll(&mut self) {
        self.socket_polls.requested = false;
    }

    #[inline]
    fn frames(&self) -> u32 {
        self.endpoint.ports().map_or(0, |ports| ports.frames(self.tid.0))
    }

    /// Handles the frames that have arrived. The frame that reports the exit of a peer arrives before all notifies of
    /// this exit. When this frame is handled, all messages of the peer are taken in first.
    pub fn read_control(&mut self, state: &mut State) -> usize {
        self.socket_polls = SocketPolls { frames_seen: self.frames(), quiet: 0, requested: false, ..self.socket_polls };
        let mut count = 0;
        self.daemon.iter_mut().for_each(ControlSocket::expect_more);
        while self.daemon.is_some() {
            if count == FRAMES_IN_TURN_MAX {
                self.request_socket_poll();
                break;
            }
            if self.is_draining() {
                self.request_socket_poll();
                break;
            }
            let Some(socket) = &mut self.daemon else { break };
            match socket.flush().and_then(|()| socket.receive_from_daemon()) {
                Ok(Some((frame, descriptors))) => {
                    self.on_frame(state, frame, descriptors);
                    self.endpoint.frame_taken();
                }
                Ok(None) => break,
                Err(_) => self.lose_daemon(),
            }
            count += 1;
        }
        count
    }

    /// Handles the ends of tasks that have waited behind gaps, and closes all gaps if the daemon is lost. Returns how many events
    /// there were.
    pub fn continue_backlog(&mut self, state: &mut State) -> usize {
        let mut count = usize::from(self.daemon.is_none() && state.close_all_gaps());
        while !self.is_draining() {
            match state.begin_end() {
                Some(peer) => {
                    self.on_peer_exit(state, peer);
                    count += 1;
                }
                None if state.finish_end() => count += 1,
                None => break,
            }
        }
        count
    }

    /// Returns whether the last messages of a peer that has ended are taken in. Until then no frames are.
    pub fn is_draining(&self) -> bool {
        self.direct.draining.is_some() || self.fabric.is_draining()
    }

    fn on_frame(&mut self, state: &mut State, frame: ToTask, descriptors: Vec<OwnedFd>) {
        match frame {
            ToTask::Reply { wait, reply } => self.on_reply(state, wait, reply),
            ToTask::Message(message) => {
                self.read_queues_before_frame(state);
                state.on_message_of_daemon(Envelope::of_daemon(&message), message.body.into_vec());
            }
            ToTask::Peer(peer) => self.on_peer(state, peer, descriptors),
            ToTask::PeerGone(peer) => {
                self.endpoint.poll_dead(peer.0, state);
                self.endpoint.peer_gone(peer.0);
                self.introductions.forget(peer);
                state.route_changed(peer, None);
            }
            ToTask::Direct(direct) => self.on_direct_link(state, &direct, descriptors),
            ToTask::Ended(peer) => {
                self.endpoint.poll_through(self.tid.host().0, state);
                // Its last messages, and the switch to a link with more, may wait behind a gap.
                match state.backlog.is_open() {
                    true => state.backlog.add_end(peer),
                    false => self.on_peer_exit(state, peer),
                }
            }
            ToTask::Halting(why) => self.halting = Some(why),
            ToTask::Group { id } => self.groups.on_group(id, descriptors),
            ToTask::ReleaseSocket => {
                // If the descriptor is missing, because this process has no room for it, the daemon answers barriers.
                if let Some(socket) = descriptors.into_iter().next() {
                    self.releases.set_socket(socket);
                    self.parker.forget_descriptors();
                }
            }
            ToTask::Chain { group, anchor } => self.releases.begin_chain(group, anchor),
            ToTask::Fabric { number, peer, offer, cause } => {
                self.on_fabric_question(state, number, (peer, cause), &offer);
            }
            ToTask::Welcome(_) | ToTask::Refused(_) => {}
        }
    }

    /// Takes in what was queued before the daemon sent the next frame. This frame may be output of a task, or report the exit of a
    /// task of another host. What was queued later stays in the queues.
    fn read_queues_before_frame(&mut self, state: &mut State) {
        let frames_ahead = self.socket_polls.queues_read.wrapping_sub(self.endpoint.next_frame()) as i32;
        if frames_ahead < 0 || self.endpoint.has_waited_for_frame() {
            // All frames up to this one were sent before the queues are read.
            self.socket_polls.queues_read = self.frames();
            self.endpoint.poll_all_through(state);
        }
    }

    fn on_reply(&mut self, state: &mut State, number: u32, reply: Reply) {
        let Some((purpose, reply)) = self.requests.on_reply(number, reply) else { return };
        let failed = matches!(reply, Reply::Error(_));
        match purpose {
            Purpose::DirectLink(peer) => {
                self.direct.open_requests -= 1;
                match reply {
                    Reply::Company => self.peers.handle_company(LaneKind::Direct, peer, clock::now()),
                    _ if failed => self.on_direct_link_break(peer),
                    _ => {}
                }
            }
            Purpose::FabricLink(peer) => self.on_fabric_reply(state, peer, &reply),
            Purpose::FabricAnswer(peer) => self.on_fabric_answered(state, peer, &reply),
            Purpose::Introduction(peer) => {
                // The daemon introduces a peer only once. If there was no room to map the peer's memory at that time,
                // there may be room now.
                self.connect_introduced(state);
                if !self.endpoint.is_connected(peer.0) {
                    self.introductions.refuse(peer, if failed { Code::NoTask } else { Code::OutOfRes });
                }
            }
            Purpose::Caller | Purpose::AwaitedInfo | Purpose::InsteadOf(_) | Purpose::Ignored => {
                unreachable!("`Requests::on_reply` keeps these")
            }
        }
    }

    /// Connects to a peer that the daemon introduces.
    fn on_peer(&mut self, state: &mut State, peer: Tid, descriptors: Vec<OwnedFd>) {
        // If the descriptors are missing, because this process has no room for them, the peer stays unconnected.
        let Ok(descriptors) = <[OwnedFd; 2]>::try_from(descriptors) else { return };
        self.introductions.add(peer, descriptors);
        self.connect_introduced(state);
    }

    /// Connects to the peers that the daemon has introduced. A peer whose memory does not fit into the address space is
    /// kept for another try, since it may have sent messages. Returns such peers.
    fn connect_introduced(&mut self, state: &mut State) -> Vec<u32> {
        let mut starved = Vec::new();
        for (peer, descriptors) in self.introductions.take() {
            match self.endpoint.try_connect(peer.0, descriptors) {
                Ok(()) => self.on_connected(state, peer),
                Err((error, descriptors)) if error.kind() == ErrorKind::OutOfMemory => {
                    self.introductions.add(peer, descriptors);
                    starved.push(peer.0);
                }
                Err(_) => {}
            }
        }
        starved
    }

    fn on_connected(&mut self, state: &mut State, peer: Tid) {
        use std::os::fd::AsRawFd;
        if peer.is_task() {
            // From now on this task sends to the peer without looking at the port table.
            self.leave_unasked_links(|_| true);
            state.route_changed(peer, Some(self.endpoint.bell().as_raw_fd()));
        }
        self.poll(state);
    }

    /// Tries again to receive the messages that could not be received for lack of address space. Returns whether one
    /// of them may be from the task `source` ([`ANY`](crate::ANY): from any).
    #[inline]
    pub fn is_starved(&mut self, state: &mut State, source: i32) -> bool {
        let starved = self.endpoint.take_starved();
        (!starved.is_empty() || self.introductions.has_unmapped()) && self.is_still_starved(state, source)
    }

    #[cold]
    fn is_still_starved(&mut self, state: &mut State, source: i32) -> bool {
        self.poll(state);
        let mut starved = self.connect_introduced(state);
        starved.extend(self.endpoint.take_starved());
        // The daemon hands over messages of tasks of other hosts.
        starved.iter().any(|from| source == crate::ANY || *from as i32 == source || !Tid(*from).is_task())
    }
}

fn wait_for_welcome(socket: &mut ControlSocket) -> Result<(Welcome, Vec<OwnedFd>), EnrollError> {
    let end = Instant::now() + WELCOME_WAIT_MAX;
    loop {
        socket.flush().map_err(|_| EnrollError::Broken)?;
        match socket.receive_from_daemon() {
            Ok(Some((ToTask::Welcome(welcome), descriptors))) => return Ok((welcome, descriptors)),
            Ok(Some((ToTask::Refused(code), _))) => return Err(EnrollError::Refused(code)),
            Ok(None) if Instant::now() < end => {}
            Ok(_) => return Err(EnrollError::Broken),
            Err(ControlError::System(errno)) => return Err(EnrollError::System(errno.into())),
            Err(_) => return Err(EnrollError::Broken),
        }
        let (events, time) = writable(socket, PollFlags::IN, Duration::from_millis(500));
        ready(socket, events, time);
    }
}

/// Returns the events to wait for and the longest wait. If frames wait to be written, adds writability to the events.
/// If the socket takes no frames because too many descriptors are in flight, the system would still report it writable:
/// then adds no event and returns a short wait.
fn writable(socket: &ControlSocket, events: PollFlags, time: Duration) -> (PollFlags, Duration) {
    match (socket.wants_write(), socket.is_descriptor_limited()) {
        (false, _) => (events, time),
        (true, false) => (events | PollFlags::OUT, time),
        (true, true) => (events, DESCRIPTOR_PAUSE),
    }
}

/// Waits until the socket is ready or the time is over.
fn ready(socket: &ControlSocket, events: PollFlags, time: Duration) {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // After an interruption the caller tries again, just as after the end of the wait.
    let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), events)], Some(&timeout));
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
