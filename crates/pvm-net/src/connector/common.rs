//! What the acceptor and the dialer share: this host's key, the sockets to watch, the events.
use super::{ConnectEvent, Pair};
use crate::identity::Identity;
use crate::link::{FRAME_BYTES_MAX, Link, LinkError};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The id of the listening socket in events.
pub const LISTENER: u64 = 0;

/// The kind of readiness for which a socket is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    Nothing,
    Read,
    ReadWrite,
    Write,
}

impl Interest {
    /// Returns the kind of readiness that a link waits for.
    pub fn of(link: &Link) -> Interest {
        if link.wants_write() { Interest::ReadWrite } else { Interest::Read }
    }

    fn flags(self) -> EventFlags {
        match self {
            Interest::Nothing => EventFlags::empty(),
            Interest::Read => EventFlags::IN,
            Interest::ReadWrite => EventFlags::IN | EventFlags::OUT,
            Interest::Write => EventFlags::OUT,
        }
    }
}

/// The state that the acceptor and the dialer share.
pub struct Common {
    identity: Identity,
    epoll: OwnedFd,
    last_id: u64,
    events: VecDeque<ConnectEvent>,
    /// The time of network silence after which a link fails.
    timeout: Duration,
}

impl Common {
    pub fn new(identity: Identity, timeout: Duration) -> Result<Common, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Common { identity, epoll, last_id: LISTENER, events: VecDeque::new(), timeout })
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    // ----- events

    pub fn push_event(&mut self, event: ConnectEvent) {
        self.events.push_back(event);
    }

    pub fn poll_event(&mut self) -> Option<ConnectEvent> {
        self.events.pop_front()
    }

    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    // ----- sockets

    pub fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Returns an id that no connection has had.
    pub fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Begins to watch a socket.
    pub fn watch(&self, id: u64, socket: BorrowedFd<'_>, interest: Interest) -> Result<(), Errno> {
        epoll::add(&self.epoll, socket, EventData::new_u64(id), interest.flags())
    }

    /// Changes the kind of readiness for which a socket is watched.
    pub fn set_interest(&self, id: u64, socket: BorrowedFd<'_>, interest: Interest) {
        // Fails only for a socket that is not watched; its connection ends at the deadline.
        let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(id), interest.flags());
    }

    /// Ceases to watch a socket.
    pub fn unwatch(&self, socket: impl AsFd) {
        let _ = epoll::delete(&self.epoll, socket);
    }

    // ----- finished links

    /// Prepares an authenticated pair for the user of the connector.
    pub fn finish_pair(&self, control: Link, data: Link) -> Result<Box<Pair>, LinkError> {
        Ok(Box::new(Pair { control: self.finish_link(control)?, data: self.finish_link(data)? }))
    }

    /// Prepares an authenticated link for its user, who watches the socket from now on.
    pub fn finish_link(&self, mut link: Link) -> Result<Link, LinkError> {
        // This fails for the control link of an outgoing pair, which is not watched any more.
        self.unwatch(&link);
        link.trust(self.timeout)?;
        link.set_frame_bytes_max(FRAME_BYTES_MAX);
        Ok(link)
    }
}
