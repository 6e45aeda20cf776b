//! The control link to one host: its session, and the connection that carries it at the moment.
use crate::source::Source;
use pvm_core::session::Session;
use pvm_core::tid::Tid;
use pvm_core::wire::{self, Frame};
use pvm_net::{Link, LinkError};
use rustix::event::epoll::{self, EventFlags};
use rustix::net::sockopt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The kind of a frame of the core.
pub const CONTROL_FRAME: u8 = 1;
/// The kind of an acknowledgement: up to which position the sender has received. Its header is the position.
pub const ACKNOWLEDGEMENT: u8 = 2;
/// Bytes of frames that are gathered for one host before they are written.
pub(super) const GATHERED_BYTES_MAX: usize = 16 << 10;

/// The control link to one host.
pub(super) struct ControlLink {
    session: Session,
    connection: Option<Connection>,
    /// Where the other side was at the last connection.
    last_address: Option<IpAddr>,
    /// The bytes that were added since the last write.
    gathered_bytes: usize,
    /// Whether the link is in the list of those that gather frames.
    pub gathers: bool,
    /// How many connections have broken.
    breaks: u32,
}

struct Connection {
    link: Link,
    /// Whether the loop waits until the socket can take more.
    watches_write: bool,
    /// How a write has failed; the next receive tells it.
    failed: Option<LinkError>,
}

/// How a connection has failed.
pub(super) enum Failure {
    /// The connection has broken. The session goes on with another one.
    Broken(LinkError),
    /// The other side breaks the rules, or does not read: the session ends.
    Final(LinkError),
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Failure {
        match error {
            LinkError::Closed | LinkError::System(_) => Failure::Broken(error),
            error => Failure::Final(error),
        }
    }
}

/// What has come on a link. A host may send any number of either kind, so both count in its budget.
#[allow(clippy::large_enum_variant)] // it is handed on at once
pub enum Received {
    /// A frame of the core.
    Frame(Frame),
    /// An acknowledgement.
    Acknowledgement,
}

impl ControlLink {
    /// Begins a session, without a connection.
    pub fn new(kept_bytes_max: usize) -> ControlLink {
        let session = Session::new(kept_bytes_max);
        ControlLink { session, connection: None, last_address: None, gathered_bytes: 0, gathers: false, breaks: 0 }
    }

    /// Takes a new connection, in the place of the one before.
    pub fn connect(&mut self, mut link: Link, epoll: &OwnedFd, host: Tid) -> Result<(), Failure> {
        self.disconnect();
        link.set_frame_bytes_max(wire::HOST_FRAME_BYTES_MAX);
        // The session limits what waits.
        link.set_queued_bytes_max(usize::MAX);
        let address = rustix::net::getpeername(&link).ok().flatten();
        let address = address.and_then(|address| SocketAddr::try_from(address).ok());
        self.last_address = address.map(|address| address.ip().to_canonical());
        let connection = self.connection.insert(Connection { link, watches_write: false, failed: None });
        let watched = epoll::add(epoll, &connection.link, Source::Control(host).data(), EventFlags::IN);
        watched.map_err(|errno| Failure::Broken(errno.into()))?;
        connection.link.queue(ACKNOWLEDGEMENT, &self.session.connect().to_le_bytes(), &[])?;
        self.write(epoll, host)
    }

    /// Drops the connection by a reset: its end in the normal way would tell the other side that this daemon has ended.
    fn disconnect(&mut self) {
        self.session.disconnect();
        if let Some(connection) = self.connection.take() {
            let _ = sockopt::set_socket_linger(&connection.link, Some(Duration::ZERO));
        }
    }

    /// Drops the connection, which has broken. Returns how many have.
    pub fn count_break(&mut self) -> u32 {
        self.disconnect();
        self.breaks = self.breaks.wrapping_add(1);
        self.breaks
    }

    pub fn has_connection(&self) -> bool {
        self.connection.is_some()
    }

    /// Returns whether the other side has closed the connection in the normal way.
    pub fn has_ended(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.link.has_ended())
    }

    pub fn last_address(&self) -> Option<IpAddr> {
        self.last_address
    }

    // ----- sending

    /// Adds a frame. Returns whether so much is gathered that it should be written now.
    pub fn send(&mut self, frame: &Frame) -> Result<bool, Failure> {
        let frame = wire::encode(frame);
        self.gathered_bytes += frame.len();
        self.session.send(frame).map_err(|_| Failure::Final(LinkError::Backlog))?;
        Ok(self.gathered_bytes > GATHERED_BYTES_MAX)
    }

    /// Writes as much as the connection takes.
    pub fn write(&mut self, epoll: &OwnedFd, host: Tid) -> Result<(), Failure> {
        (self.gathers, self.gathered_bytes) = (false, 0);
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let result = write(&mut self.session, &mut connection.link);
        connection.watch(epoll, host);
        match result {
            // What the other side sent before its end can still be read, and then the end itself.
            Err(LinkError::Closed) if connection.link.is_unwritable() => Ok(()),
            result => Ok(result?),
        }
    }

    /// Returns how many bytes wait for the other side, or are on their way to it.
    pub fn kept_bytes(&self) -> usize {
        self.session.kept_bytes()
    }

    /// Returns whether frames wait that the system has not taken.
    pub fn has_unwritten(&self) -> bool {
        let link = self.connection.as_ref().map(|connection| &connection.link);
        !self.session.is_all_written() || link.is_some_and(Link::wants_write)
    }

    /// Returns how many TCP segments were sent again on the connection.
    pub fn retransmissions(&self) -> u32 {
        self.connection.as_ref().map_or(0, |connection| connection.link.retransmissions())
    }

    /// Returns the connection.
    pub fn link(&mut self) -> Option<&mut Link> {
        self.connection.as_mut().map(|connection| &mut connection.link)
    }

    // ----- receiving

    /// Returns the next complete frame of either kind.
    pub fn receive(&mut self, epoll: &OwnedFd, host: Tid) -> Result<Option<Received>, Failure> {
        let Some(connection) = &mut self.connection else { return Ok(None) };
        if let Some(error) = connection.failed.take() {
            return Err(error.into());
        }
        let was_open = self.session.is_open();
        let received = receive(&mut self.session, &mut connection.link)?;
        let position = take_acknowledgement(&mut self.session, &connection.link, false);
        let mut result = match position {
            Some(position) => {
                connection.link.queue(ACKNOWLEDGEMENT, &position.to_le_bytes(), &[]).map_err(Failure::from)
            }
            None => Ok(()),
        };
        if result.is_ok() && (position.is_some() || !was_open) {
            result = self.write(epoll, host);
        }
        // The frame counts as received, so it must not be lost for a failure here. The system tells an error only once.
        if let (Err(Failure::Broken(error) | Failure::Final(error)), Some(connection)) = (result, &mut self.connection)
        {
            connection.failed = Some(error);
        }
        Ok(received)
    }

    /// Returns whether frames, or the end of the connection, can be taken although no event of the socket will report them.
    pub fn has_unread(&self) -> bool {
        let has_more =
            |Connection { link, failed, .. }: &Connection| link.has_unread() || link.is_broken() || failed.is_some();
        self.connection.as_ref().is_some_and(has_more)
    }
}

impl Connection {
    /// Watches the socket for room, but only while bytes wait for the socket.
    fn watch(&mut self, epoll: &OwnedFd, host: Tid) {
        let wanted = self.link.wants_write();
        if wanted != self.watches_write {
            self.watches_write = wanted;
            let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            // Fails only for a socket that is not watched.
            let _ = epoll::modify(epoll, &self.link, Source::Control(host).data(), flags);
        }
    }
}

/// Writes frames until there are no more, or the socket is full. The frames that do not fit wait in the session, in clear.
fn write(session: &mut Session, link: &mut Link) -> Result<(), LinkError> {
    if session.next_frame().is_some() {
        if let Some(position) = take_acknowledgement(session, link, true) {
            link.queue(ACKNOWLEDGEMENT, &position.to_le_bytes(), &[])?;
        }
    }
    loop {
        while let Some(frame) = session.next_frame().filter(|_| link.queued_bytes() <= GATHERED_BYTES_MAX) {
            link.queue(CONTROL_FRAME, &[], frame)?;
            session.mark_written();
        }
        link.flush()?;
        if link.wants_write() || session.next_frame().is_none() {
            return Ok(());
        }
    }
}

/// Returns the acknowledgement that is to be sent now, unless so much waits for the socket that a later one will do: a host that
/// does not read gets no pile of them.
fn take_acknowledgement(session: &mut Session, link: &Link, with_frames: bool) -> Option<u64> {
    let has_room = link.queued_bytes() <= GATHERED_BYTES_MAX;
    if has_room { session.take_acknowledgement(with_frames) } else { None }
}

/// Takes the next complete frame of either kind.
fn receive(session: &mut Session, link: &mut Link) -> Result<Option<Received>, LinkError> {
    let Some((head, body)) = link.receive_whole()? else { return Ok(None) };
    let received = match (head.kind, head.header()) {
        (CONTROL_FRAME, []) => {
            let counted = session.count_received(body.len()).ok();
            counted.and_then(|()| wire::decode(body)).map(Received::Frame)
        }
        (ACKNOWLEDGEMENT, header) if body.is_empty() => {
            let position = header.try_into().ok().map(u64::from_le_bytes);
            let result = position.and_then(|position| session.handle_acknowledgement(position).ok());
            result.map(|()| Received::Acknowledgement)
        }
        _ => None,
    };
    received.map(Some).ok_or(LinkError::Malformed)
}
