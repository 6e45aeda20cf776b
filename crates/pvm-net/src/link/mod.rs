//! One connection that carries frames.
//!
//! A frame is six bytes of head (length of all that follows the head, `u32` in little-endian order;
//! its kind; the length of its header) and then header and body. The header is short and is handed
//! out whole; the body can be long and is copied to where the reader wants it.
mod partial;
mod receiving;
mod sending;

use crate::buffer::Buffer;
use crate::keys::PublicKey;
use crate::raw::{self, Carried};
use crate::socket;
use crate::tls::{Identity, Tls};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub use receiving::HANDSHAKE_BYTES_MAX;

/// Bytes of a frame's header at most.
pub const HEADER_BYTES_MAX: usize = 128;
/// A frame, unless the link is told otherwise.
///
/// * Filled by: each other host
/// * Setting: none, both sides count by the same number
/// * Reached: the link is closed
/// * Test: `a_frame_that_is_too_long_is_refused_on_both_sides`
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// What waits for the socket of a link, beside the frame that exceeds it and one that is longer by itself, unless
/// the link is told otherwise.
///
/// * Filled by: each other host that does not read
/// * Setting: none, daemons tell their links otherwise
/// * Reached: the link is given up
/// * Test: `a_peer_that_does_not_read_is_given_up_when_too_much_waits`
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// Bytes in front of a frame.
const HEAD_BYTES: usize = 6;

/// Why a link is of no use any more.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkError {
    /// The peer is gone.
    Closed,
    /// The system says no.
    System(Errno),
    /// The peer is not who it should be, or does not keep to the protocol.
    Tls(rustls::Error),
    /// A frame, the own or the peer's, is longer than allowed.
    TooLong(usize),
    /// A frame whose header is longer than allowed, or than the frame.
    Malformed,
    /// The peer sends more than it may before it is known.
    TooMuch,
    /// The peer reads too slowly for what it is sent.
    Backlog,
}

impl fmt::Display for LinkError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::Closed => formatter.write_str("connection closed"),
            LinkError::System(errno) => write!(formatter, "{errno}"),
            LinkError::Tls(error) => write!(formatter, "{error}"),
            LinkError::TooLong(bytes) => write!(formatter, "a frame of {bytes} bytes is too long"),
            LinkError::Malformed => formatter.write_str("malformed frame"),
            LinkError::TooMuch => formatter.write_str("says too much before it is known"),
            LinkError::Backlog => formatter.write_str("the peer does not keep up"),
        }
    }
}

impl std::error::Error for LinkError {}

impl From<Errno> for LinkError {
    fn from(errno: Errno) -> LinkError {
        match errno {
            Errno::CONNRESET | Errno::PIPE => LinkError::Closed,
            errno => LinkError::System(errno),
        }
    }
}

impl From<rustls::Error> for LinkError {
    fn from(error: rustls::Error) -> LinkError {
        LinkError::Tls(error)
    }
}

/// The beginning of a frame; its body is taken from the link.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// What the sender said it is.
    pub kind: u8,
    /// Bytes of the body.
    pub body_bytes: usize,
    header: [u8; HEADER_BYTES_MAX],
    header_bytes: u8,
}

impl Head {
    /// The header.
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_bytes)]
    }
}

/// One connection. Whoever holds it watches its socket and calls it when that is ready.
pub struct Link {
    socket: OwnedFd,
    /// Absent on a link in clear.
    tls: Option<Box<Tls>>,
    /// Received, in clear.
    inbox: Buffer,
    /// To be sent, as it goes to the socket.
    outbox: Buffer,
    /// Bytes of the current frame's body that have not been taken.
    body_left: usize,
    /// Bytes of the body that is being sent which have not been pushed.
    body_owed: usize,
    /// Bytes read from the socket so far, while the peer is not known.
    stranger_bytes: usize,
    trusted: bool,
    /// So much comes on this encrypted link that more is read in one go.
    is_busy: bool,
    frame_bytes_max: usize,
    queued_bytes_max: usize,
    /// Bytes of the longest frame, of those that wait, that is longer than all may be that waits. One who
    /// reads it takes its time, and is not to be given up for what comes meanwhile.
    outsize: usize,
    /// Nothing more can be read, and why; what came before can still be taken.
    broken: Option<LinkError>,
    /// The other side has said that nothing more comes.
    ended: bool,
}

impl Link {
    /// A link in clear over a connected socket that does not block.
    pub fn clear(socket: OwnedFd) -> Link {
        Link {
            socket,
            tls: None,
            inbox: Buffer::default(),
            outbox: Buffer::default(),
            body_left: 0,
            body_owed: 0,
            stranger_bytes: 0,
            trusted: false,
            is_busy: false,
            frame_bytes_max: FRAME_BYTES_MAX,
            queued_bytes_max: QUEUED_BYTES_MAX,
            outsize: 0,
            broken: None,
            ended: false,
        }
    }

    /// The calling side of an encrypted link to the one with that key.
    pub fn secure_to(socket: OwnedFd, identity: &Identity, peer: PublicKey) -> Result<Link, LinkError> {
        let tls = Some(Box::new(identity.client(peer)?));
        let mut link = Link { tls, ..Link::clear(socket) };
        link.advance()?;
        Ok(link)
    }

    /// The called side of an encrypted link.
    pub fn secure_from(socket: OwnedFd, identity: &Identity) -> Result<Link, LinkError> {
        let tls = Some(Box::new(identity.server()?));
        Ok(Link { tls, ..Link::clear(socket) })
    }

    /// The peer is known: it may send as much as it wants. What does not get through is tried again some times
    /// within the time.
    pub fn trust(&mut self, timeout: Duration) -> Result<(), LinkError> {
        self.trusted = true;
        Ok(socket::tune(&self.socket, timeout)?)
    }

    /// The peer is given up, too, if it leaves unread for so long what it has been sent.
    pub fn limit_unread(&mut self, timeout: Duration) -> Result<(), LinkError> {
        Ok(socket::limit_unread(&self.socket, timeout)?)
    }

    /// The peer is known, and its socket has been tuned elsewhere ([`Link::trust`]).
    pub fn trust_as_it_is(&mut self) {
        self.trusted = true;
    }

    /// Sets how long a frame may be.
    pub fn set_frame_bytes_max(&mut self, bytes: usize) {
        self.frame_bytes_max = bytes;
    }

    /// Sets how much may wait for the socket: a frame is taken while no more than this waits, apart from
    /// a frame that is longer by itself.
    pub fn set_queued_bytes_max(&mut self, bytes: usize) {
        self.queued_bytes_max = bytes;
    }

    /// What the connection has carried; `None` where the socket is none of TCP's.
    pub fn carried(&self) -> Option<Carried> {
        raw::carried(self.as_fd()).ok()
    }

    /// Whether frames can be sent and received: at once in clear, else after the handshake.
    pub fn is_ready(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_ready())
    }

    /// How many segments TCP has sent again since the connection stands.
    pub fn sent_again(&self) -> u32 {
        raw::carried(self.socket.as_fd()).map_or(0, |carried| carried.sent_again)
    }

    /// Whether what is sent is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Who the peer has proved to be. Nobody on a link in clear.
    pub fn peer(&self) -> Option<PublicKey> {
        self.tls.as_ref()?.peer()
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_encrypted() { "encrypted" } else { "clear" };
        write!(formatter, "a link, {how}, peer {:?}", self.peer())
    }
}

#[cfg(test)]
mod tests;
