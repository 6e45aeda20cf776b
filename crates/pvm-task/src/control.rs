//! The task's membership: its socket to the daemon and its endpoint in shared memory.
use crate::direct::Directs;
use crate::groups::Groups;
use crate::receive::{Arriving, Envelope};
use crate::task::State;
use crate::wait::Bed;
use crate::{EnrollError, Environment};
use pvm_core::codes::Code;
use pvm_core::proto::{ByteBuf, Hello, Message, Reply, Request, ToDaemon, ToTask, TraceSettings, VERSION, Welcome};
use pvm_core::tid::Tid;
use pvm_fmp::descriptor::Floor;
use pvm_fmp::ports::PortView;
use pvm_fmp::{Endpoint, Meta};
use pvm_link::rendezvous::FindError;
use pvm_link::{ControlError, ControlSocket, DESCRIPTOR_PAUSE};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a daemon may take to let a task in.
const WELCOME_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a task that leaves waits for the socket to take its last frames.
const GOODBYE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Frames taken in one look, so that a task whose children print without end comes to show it.
const FRAMES_IN_TURN_MAX: usize = 256;
/// Polls without news after which the socket is looked at, to see that the daemon has died.
const QUIET_POLLS_MAX: u32 = 4096;

/// What becomes of the answer to a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Fate {
    /// Somebody holds the ticket.
    Wanted,
    /// It has come.
    Here(Reply),
    /// Nobody asks for it.
    Unheeded,
    /// It ends the introduction to that peer.
    Introduction(Tid),
    /// It says whether there is a direct link to that peer.
    Direct(Tid),
}

/// A task's membership of the machine.
pub(crate) struct Member {
    pub tid: Tid,
    pub parent: i32,
    pub dsig: i32,
    pub resource_manager: Tid,
    pub endpoint: Endpoint,
    /// `None` when the daemon is gone.
    pub link: Option<ControlSocket>,
    pub halting: bool,
    /// Requests that have not been answered, or whose answers have not been fetched.
    pub requests: Vec<(u32, Fate)>,
    next_wait: u32,
    /// Peers to which the daemon could not introduce us: dead ones (`NoTask`), and those for whose
    /// descriptors or memory there was no room (`OutOfRes`).
    pub refused: Vec<(Tid, Code)>,
    /// Peers that could not be mapped when they were introduced, with segment and doorbell.
    unmet: Vec<(Tid, [OwnedFd; 2])>,
    frames_seen: u32,
    quiet_polls: u32,
    /// The socket is worth a look whatever the port table says.
    pub look_at_socket: bool,
    /// Something has come since the task was about to sleep; there may be more.
    pub stirring: bool,
    /// Since when nothing has come, as far as it matters: of a task that sleeps with much free
    /// memory.
    pub idle_since: Option<Instant>,
    /// The endpoint says that a one-call receive waits.
    pub posted: bool,
    /// The daemon carries a long message of this task.
    pub carried: bool,
    pub direct: Directs,
    pub bed: Bed,
    pub groups: Groups,
}

impl Member {
    /// Connects to the daemon and waits to be let in.
    pub fn enroll(environment: &Environment, cookie: Option<u32>) -> Result<(Member, TraceSettings), EnrollError> {
        let _floor = Floor::lay();
        let link = environment.places.connect().map_err(|error| match error {
            FindError::Absent => EnrollError::NoDaemon,
            error => EnrollError::Unreachable(error),
        })?;
        Member::enter(link, environment, cookie)
    }

    /// Says who it is, and waits to be let in.
    pub(crate) fn enter(
        mut link: ControlSocket,
        environment: &Environment,
        cookie: Option<u32>,
    ) -> Result<(Member, TraceSettings), EnrollError> {
        let mut endpoint = Endpoint::new().map_err(EnrollError::System)?;
        let descriptors = endpoint.descriptors().map_err(EnrollError::System)?;
        let name = ByteBuf::from(environment.name.clone());
        let hello = ToDaemon::Hello(Hello { version: VERSION, pid: std::process::id(), cookie, name });
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        link.send_to_daemon(&hello, &borrowed).map_err(|_| EnrollError::Broken)?;
        let (welcome, descriptors) = wait_for_welcome(&mut link)?;
        let mut descriptors = descriptors.into_iter();
        let ports = descriptors.next().ok_or(EnrollError::Broken)?;
        if let (Some(segment), Some(bell)) = (descriptors.next(), descriptors.next()) {
            endpoint = Endpoint::adopt(segment, bell).map_err(EnrollError::System)?;
        }
        endpoint.enrolled(welcome.tid.0, PortView::new(ports).map_err(EnrollError::System)?);
        let member = Member {
            tid: welcome.tid,
            parent: welcome.parent,
            dsig: welcome.dsig,
            resource_manager: welcome.resource_manager,
            endpoint,
            link: Some(link),
            halting: false,
            requests: Vec::new(),
            next_wait: 1,
            refused: Vec::new(),
            unmet: Vec::new(),
            frames_seen: 0,
            quiet_polls: 0,
            look_at_socket: true,
            stirring: false,
            idle_since: None,
            posted: false,
            carried: false,
            direct: Directs::default(),
            bed: Bed::default(),
            groups: Groups::default(),
        };
        Ok((member, welcome.own))
    }

    /// This process takes the place of its parent.
    pub fn inherit(&mut self) -> bool {
        let own = rustix::process::getpid();
        let Some(link) = &mut self.link else { return false };
        let Ok(process) = rustix::process::pidfd_open(own, PidfdFlags::empty()) else { return false };
        if link.send_to_daemon(&ToDaemon::Heir, &[process.as_fd()]).is_err() {
            return false;
        }
        self.endpoint.inherit();
        // Threads that slept are the parent's.
        self.bed = Bed::default();
        self.look_at_socket = true;
        true
    }

    /// Says goodbye. What was sent before stays with its receivers.
    pub fn leave(mut self) -> Result<(), Code> {
        self.bed.nudge();
        self.send(&ToDaemon::Bye);
        self.send_last_frames();
        self.link.take().map(drop).ok_or(Code::SysErr)
    }

    /// Waits until the socket has taken what the daemon has to hear; a link that fails is gone.
    pub fn send_last_frames(&mut self) {
        let end = Instant::now() + GOODBYE_WAIT_MAX;
        while let Some(link) = self.link.as_mut().filter(|link| link.wants_write() && Instant::now() < end) {
            let (events, time) = writable(link, PollFlags::empty(), Duration::from_millis(100));
            ready(link, events, time);
            if link.flush().is_err() {
                self.lose_daemon();
            }
        }
    }

    /// Where the daemon listens.
    pub fn daemon_socket(&self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStrExt;
        let address = rustix::net::getpeername(self.link.as_ref()?.as_fd()).ok()??;
        let address = rustix::net::SocketAddrUnix::try_from(address).ok()?;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(address.path_bytes()?)))
    }

    // ----- sending

    /// Sends a frame; a link that fails is gone. Gives whether the frame was not too long.
    pub fn send(&mut self, frame: &ToDaemon) -> bool {
        let Some(link) = &mut self.link else { return true };
        match link.send_to_daemon(frame, &[]) {
            Ok(()) => true,
            Err(ControlError::TooLong) => false,
            Err(_) => {
                self.lose_daemon();
                true
            }
        }
    }

    /// Queues bytes to a connected peer. Where the peer must wake up while the call lasts, the daemon rings it then.
    #[inline]
    pub fn send_bytes(&mut self, to: Tid, meta: Meta, body: &[u8]) -> Result<(), Code> {
        let (link, mut lost) = (&mut self.link, false);
        let mut ring =
            || lost |= link.as_mut().is_some_and(|link| link.send_to_daemon(&ToDaemon::Ring(to), &[]).is_err());
        let sent = self.endpoint.send_bytes_ringing(to.0, meta, body, &mut ring);
        if lost {
            self.lose_daemon();
        }
        self.conclude(to, sent)
    }

    /// Sends a request.
    pub fn request(&mut self, request: Request, fate: Fate) -> Result<u32, Code> {
        let wait = self.next_wait;
        self.next_wait = self.next_wait.wrapping_add(1);
        if !self.send(&ToDaemon::Request { wait, request }) {
            return Err(Code::NoMem);
        }
        if self.link.is_none() {
            return Err(Code::SysErr);
        }
        self.requests.push((wait, fate));
        Ok(wait)
    }

    /// The daemon is gone: nothing that was asked will be answered.
    fn lose_daemon(&mut self) {
        self.link = None;
        self.requests.retain(|(_, fate)| matches!(fate, Fate::Here(_)));
        self.direct.open_asks = 0;
        self.bed.clear();
    }

    // ----- what comes

    /// Takes messages out of shared memory.
    #[inline]
    pub fn poll(&mut self, state: &mut State) -> usize {
        self.endpoint.poll(&mut Arriving { state, own: self.tid.0 as i32 })
    }

    /// Whether the socket may have something. No system call.
    #[inline]
    pub fn control_stirs(&mut self) -> bool {
        self.quiet_polls += 1;
        self.look_at_socket || self.quiet_polls > QUIET_POLLS_MAX || self.frames() != self.frames_seen
    }

    #[inline]
    fn frames(&self) -> u32 {
        self.endpoint.ports().map_or(0, |ports| ports.frames(self.tid.0))
    }

    /// Handles the frames that have come. The news of a peer's end comes before all that the daemon
    /// tells others about it; then everything that the peer had sent is taken in first.
    pub fn read_control(&mut self, state: &mut State) -> usize {
        self.look_at_socket = false;
        self.quiet_polls = 0;
        self.frames_seen = self.frames();
        let mut count = 0;
        while let Some(link) = &mut self.link {
            if count == FRAMES_IN_TURN_MAX {
                self.look_at_socket = true;
                break;
            }
            if self.direct.waits_for.is_some() {
                self.look_at_socket = true;
                break;
            }
            match link.flush().and_then(|()| link.receive_from_daemon()) {
                Ok(Some((frame, descriptors))) => self.handle(state, frame, descriptors),
                Ok(None) => break,
                Err(_) => self.lose_daemon(),
            }
            count += 1;
        }
        count
    }

    fn handle(&mut self, state: &mut State, frame: ToTask, descriptors: Vec<OwnedFd>) {
        match frame {
            ToTask::Reply { wait, reply } => self.answer(state, wait, reply),
            ToTask::Message(message) => {
                // It may tell of a task of another host: what that sent comes first.
                self.endpoint.poll_through(self.tid.host().0, &mut Arriving { state, own: self.tid.0 as i32 });
                deliver(state, message);
            }
            ToTask::Peer(peer) => self.meet(state, peer, descriptors),
            ToTask::PeerGone(peer) => {
                let own = self.tid.0 as i32;
                self.endpoint.poll_dead(peer.0, &mut Arriving { state, own });
                self.endpoint.peer_gone(peer.0);
                self.unmet.retain(|(unmet, _)| *unmet != peer);
                state.route_changed(peer, None);
            }
            ToTask::Direct(direct) => self.add_direct(state, &direct, descriptors),
            ToTask::Ended(peer) => {
                self.endpoint.poll_through(self.tid.host().0, &mut Arriving { state, own: self.tid.0 as i32 });
                self.peer_ended(state, peer);
            }
            ToTask::Halting => self.halting = true,
            ToTask::Group { id } => self.group_arrived(id, descriptors),
            ToTask::Welcome(_) | ToTask::Refused(_) => {}
        }
    }

    fn answer(&mut self, state: &mut State, wait: u32, reply: Reply) {
        let Some(at) = self.requests.iter().position(|(number, _)| *number == wait) else { return };
        match &self.requests[at].1 {
            Fate::Wanted => self.requests[at].1 = Fate::Here(reply),
            Fate::Here(_) => {}
            Fate::Unheeded => {
                self.requests.swap_remove(at);
            }
            Fate::Direct(peer) => {
                self.direct.open_asks -= 1;
                if matches!(reply, Reply::Error(_)) {
                    self.direct.refused(*peer);
                }
                self.requests.swap_remove(at);
            }
            Fate::Introduction(peer) => {
                let peer = *peer;
                self.requests.swap_remove(at);
                // The daemon introduces nobody twice; there may be room by now for one who came before.
                self.meet_all(state);
                if !self.endpoint.is_connected(peer.0) {
                    let dead = matches!(reply, Reply::Error(_));
                    self.refused.push((peer, if dead { Code::NoTask } else { Code::OutOfRes }));
                }
            }
        }
    }

    /// A peer that the daemon introduces.
    fn meet(&mut self, state: &mut State, peer: Tid, descriptors: Vec<OwnedFd>) {
        // Without descriptors (this process has no room for them) the peer stays a stranger.
        let Ok(descriptors) = <[OwnedFd; 2]>::try_from(descriptors) else { return };
        self.unmet.retain(|(unmet, _)| *unmet != peer);
        self.unmet.push((peer, descriptors));
        self.meet_all(state);
    }

    /// Meets those whom the daemon has introduced. One for whom there is no address space is tried again: it
    /// may have sent something. Whether there was one.
    fn meet_all(&mut self, state: &mut State) -> bool {
        let mut starved = false;
        for (peer, descriptors) in std::mem::take(&mut self.unmet) {
            match self.endpoint.try_connect(peer.0, descriptors) {
                Ok(()) => self.met(state, peer),
                Err((error, descriptors)) if error.kind() == ErrorKind::OutOfMemory => {
                    self.unmet.push((peer, descriptors));
                    starved = true;
                }
                Err(_) => {}
            }
        }
        starved
    }

    fn met(&mut self, state: &mut State, peer: Tid) {
        use std::os::fd::AsRawFd;
        if peer.is_task() {
            state.route_changed(peer, Some(self.endpoint.bell().as_raw_fd()));
        }
        self.poll(state);
    }

    /// Whether something that was sent cannot be had for want of address space, as far as was seen since the
    /// last call.
    pub fn take_starved(&mut self, state: &mut State) -> bool {
        self.endpoint.take_starved() || (!self.unmet.is_empty() && self.meet_all(state))
    }
}

/// A message that the daemon made or kept.
fn deliver(state: &mut State, message: Message) {
    let envelope = Envelope {
        src: message.src.0 as i32,
        dst: message.dst.0 as i32,
        ctx: message.ctx,
        tag: message.tag,
        wid: message.wid,
        enc: message.enc,
        format: message.format,
    };
    state.arrived_bytes(envelope, message.body.into_vec());
}

fn wait_for_welcome(link: &mut ControlSocket) -> Result<(Welcome, Vec<OwnedFd>), EnrollError> {
    let end = Instant::now() + WELCOME_WAIT_MAX;
    loop {
        link.flush().map_err(|_| EnrollError::Broken)?;
        match link.receive_from_daemon() {
            Ok(Some((ToTask::Welcome(welcome), descriptors))) => return Ok((welcome, descriptors)),
            Ok(Some((ToTask::Refused(code), _))) => return Err(EnrollError::Refused(code)),
            Ok(None) if Instant::now() < end => {}
            Ok(_) => return Err(EnrollError::Broken),
            Err(ControlError::System(errno)) => return Err(EnrollError::System(errno.into())),
            Err(_) => return Err(EnrollError::Broken),
        }
        let (events, time) = writable(link, PollFlags::IN, Duration::from_millis(500));
        ready(link, events, time);
    }
}

/// What to wait for beside that, and how long at most: until the socket can be written where something waits for it, or
/// for a moment where that would say nothing.
fn writable(link: &ControlSocket, events: PollFlags, time: Duration) -> (PollFlags, Duration) {
    match (link.wants_write(), link.is_descriptor_limited()) {
        (false, _) => (events, time),
        (true, false) => (events | PollFlags::OUT, time),
        (true, true) => (events, DESCRIPTOR_PAUSE),
    }
}

/// Waits until the socket is ready, or the time is over.
fn ready(link: &ControlSocket, events: PollFlags, time: Duration) {
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    // An interrupted wait is as good as one that has ended: the caller looks again.
    let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(link.as_fd(), events)], Some(&timeout));
}
