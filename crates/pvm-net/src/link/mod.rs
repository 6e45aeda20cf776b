//! A connection that carries frames.
//!
//! A frame is a head of six bytes, then a header and a body. The head holds the length of header and body together as a
//! little-endian `u32`, the kind, and the length of the header. The header is short and is returned as a whole. The
//! body can be long and is copied to the place that the reader specifies.
mod byte_stream;
mod partial;
mod receiving;
mod sending;

use crate::buffer::Buffer;
use crate::identity::Identity;
use crate::keys::PublicKey;
use crate::raw::{self, Carried};
use crate::socket;
use crate::tls::Tls;
use pvm_descriptor::OwnDescriptor;
use receiving::ReadSize;
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

pub use byte_stream::ByteStream;
pub use receiving::HANDSHAKE_BYTES_MAX;
pub use sending::Lead;

/// The maximum length of a frame's header, in bytes.
pub const HEADER_BYTES_MAX: usize = 128;
/// The maximum length of a frame, in bytes, unless the user of the link sets another limit.
///
/// * Filled by: each other host
/// * Setting: none, both sides must use the same number
/// * Reached: the link is closed
/// * Test: `a_frame_that_is_too_long_is_refused_on_both_sides`
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// The largest number of bytes that may wait for the socket of a link when another frame is sent. A waiting frame that
/// alone is longer than the limit does not count. The user of the link can set another limit.
///
/// * Filled by: each other host that does not read
/// * Setting: none, daemons set other limits for their links
/// * Reached: the link is given up
/// * Test: `a_peer_that_does_not_read_is_given_up_when_too_much_waits`
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// The length of a frame's head, in bytes.
const HEAD_BYTES: usize = 6;

/// Why a link has failed.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkError {
    /// The peer is gone.
    Closed,
    /// A system call has failed.
    System(Errno),
    /// The peer is not the expected one, or violates the TLS protocol.
    Tls(rustls::Error),
    /// A frame of either side is longer than allowed.
    TooLong(usize),
    /// A frame has a header that is longer than allowed, or longer than the frame.
    Malformed,
    /// The peer sends too much before it is authenticated.
    TooMuch,
    /// The peer reads too slowly.
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

/// The beginning of a frame. The body must be read from the link separately.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    /// The kind, which the sender has chosen.
    pub kind: u8,
    /// The length of the body, in bytes.
    pub body_bytes: usize,
    header: [u8; HEADER_BYTES_MAX],
    header_bytes: u8,
}

impl Head {
    /// Returns the header.
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_bytes)]
    }
}

/// A connection. The owner of the link watches the socket, and calls the link's functions when the socket is ready.
pub struct Link {
    socket: OwnDescriptor,
    /// Absent in clear.
    tls: Option<Box<Tls>>,
    /// Received bytes, in clear.
    inbox: Buffer,
    /// Bytes to send, encrypted if the link is encrypted.
    outbox: Buffer,
    /// The number of bytes of the received frame's body that have not been taken.
    body_left: usize,
    /// The number of body bytes of the frame being sent that the link has not taken yet.
    body_owed: usize,
    /// The number of bytes that were read from the socket before the peer was authenticated.
    stranger_bytes: usize,
    trusted: bool,
    read_size: ReadSize,
    /// Whether the last read has emptied the socket.
    is_drained: bool,
    frame_bytes_max: usize,
    queued_bytes_max: usize,
    /// The length of the longest waiting frame that alone exceeds the limit for waiting bytes. The peer needs time to
    /// read such a frame, and is not given up because of frames that are added meanwhile.
    oversize_bytes: usize,
    /// The error after which nothing more can be read. Bytes that arrived before the error can still be taken.
    broken: Option<LinkError>,
    /// Whether the other side has closed the connection in the normal way.
    ended: bool,
    /// Whether a write has shown that the other side takes nothing any more.
    is_unwritable: bool,
}

impl Link {
    /// Makes a link in clear over a connected socket that does not block.
    pub fn clear(socket: OwnedFd) -> Link {
        Link {
            socket: socket.into(),
            tls: None,
            inbox: Buffer::default(),
            outbox: Buffer::default(),
            body_left: 0,
            body_owed: 0,
            stranger_bytes: 0,
            trusted: false,
            read_size: ReadSize::First,
            is_drained: false,
            frame_bytes_max: FRAME_BYTES_MAX,
            queued_bytes_max: QUEUED_BYTES_MAX,
            oversize_bytes: 0,
            broken: None,
            ended: false,
            is_unwritable: false,
        }
    }

    /// Makes the calling side of an encrypted link to the peer with the given key.
    pub fn secure_to(socket: OwnedFd, identity: &Identity, peer: PublicKey) -> Result<Link, LinkError> {
        let tls = Some(Box::new(identity.client(peer)?));
        let mut link = Link { tls, ..Link::clear(socket) };
        link.advance()?;
        Ok(link)
    }

    /// Makes the called side of an encrypted link.
    pub fn secure_from(socket: OwnedFd, identity: &Identity) -> Result<Link, LinkError> {
        let tls = Some(Box::new(identity.server()?));
        Ok(Link { tls, ..Link::clear(socket) })
    }

    /// Marks the peer as authenticated, so that it may send any amount, and sets the socket's options. Retransmissions
    /// are spread over `timeout`.
    pub fn trust(&mut self, timeout: Duration) -> Result<(), LinkError> {
        self.trusted = true;
        Ok(socket::tune(&self.socket, timeout)?)
    }

    /// Makes the link fail, from now on, if the peer leaves sent data unread for `timeout`.
    pub fn limit_unread(&mut self, timeout: Duration) -> Result<(), LinkError> {
        Ok(socket::limit_unread(&self.socket, timeout)?)
    }

    /// Marks the peer as authenticated, on a socket whose options were set elsewhere ([`Link::trust`]).
    pub fn trust_as_it_is(&mut self) {
        self.trusted = true;
    }

    /// Sets the maximum length of a frame.
    pub fn set_frame_bytes_max(&mut self, bytes: usize) {
        self.frame_bytes_max = bytes;
    }

    /// Sets how many bytes may wait for the socket. Another frame is accepted as long as no more bytes than this wait.
    /// A waiting frame that alone is longer than this does not count.
    pub fn set_queued_bytes_max(&mut self, bytes: usize) {
        self.queued_bytes_max = bytes;
    }

    /// Returns the counters of the connection, or `None` if the socket is not a TCP socket.
    pub fn carried(&self) -> Option<Carried> {
        raw::carried(self.as_fd()).ok()
    }

    /// Returns whether frames can be sent and received. This is so on a link in clear at once, and on an encrypted link
    /// after the handshake.
    pub fn is_ready(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_ready())
    }

    /// Returns how many segments TCP has sent again since the connection was made.
    pub fn retransmissions(&self) -> u32 {
        raw::carried(self.socket.as_fd()).map_or(0, |carried| carried.retransmissions)
    }

    /// Returns whether the link is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the key that the peer has proved to have. A link in clear has none.
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
