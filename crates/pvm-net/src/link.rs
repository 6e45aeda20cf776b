//! One connection that carries frames.
//!
//! A frame is six bytes of head (length of all that follows the head, `u32` in little-endian order;
//! its kind; the length of its header) and then header and body. The header is short and is handed
//! out whole; the body can be long and is copied to where the reader wants it.
use crate::buffer::Buffer;
use crate::keys::PublicKey;
use crate::pipe::Pipe;
use crate::socket;
use crate::tls::{Identity, Tls};
use rustix::io::Errno;
use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Bytes of a frame's header at most.
pub const HEADER_BYTES_MAX: usize = 128;
/// Bytes of a frame at most, unless the link is told otherwise.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes that may wait for the socket before a link is given up, unless it is told otherwise.
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// Bytes in front of a frame.
const HEAD_BYTES: usize = 6;
/// Bytes that a peer can send before it is known.
pub const HANDSHAKE_BYTES_MAX: usize = 8 << 10;
/// Bytes read in one go from a peer that is not known yet.
const STRANGER_READ_BYTES: usize = 4 << 10;
/// Bytes read in one go.
const READ_BYTES: usize = 64 << 10;
/// A rest of a body from here on is read to where it belongs.
const READ_STRAIGHT_BYTES: usize = 4 << 10;
/// Parts of a body written by one system call.
const PARTS_MAX: usize = 16;

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
    /// Bytes read from the socket so far, while the peer is not known.
    stranger_bytes: usize,
    trusted: bool,
    frame_bytes_max: usize,
    queued_bytes_max: usize,
    /// Nothing more can be read, and why; what came before can still be taken.
    broken: Option<LinkError>,
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
            stranger_bytes: 0,
            trusted: false,
            frame_bytes_max: FRAME_BYTES_MAX,
            queued_bytes_max: QUEUED_BYTES_MAX,
            broken: None,
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

    /// The peer is known: it may send as much as it wants, and is given up after so long a silence
    /// of its network.
    pub fn trust(&mut self, timeout: Duration) -> Result<(), LinkError> {
        self.trusted = true;
        Ok(socket::tune(&self.socket, timeout)?)
    }

    /// Sets how long a frame may be.
    pub fn set_frame_bytes_max(&mut self, bytes: usize) {
        self.frame_bytes_max = bytes;
    }

    /// Sets how much may wait for the socket: a frame is taken while no more than this waits.
    pub fn set_queued_bytes_max(&mut self, bytes: usize) {
        self.queued_bytes_max = bytes;
    }

    /// Whether frames can be sent and received: at once in clear, else after the handshake.
    pub fn is_ready(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.is_ready())
    }

    /// Whether what is sent is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Who the peer has proved to be. Nobody on a link in clear.
    pub fn peer(&self) -> Option<PublicKey> {
        self.tls.as_ref()?.peer()
    }

    // ----- sending

    /// Whether what is sent now goes straight to the socket.
    pub fn has_room(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Whether something waits for the socket to take it; then watch for that and call
    /// [`Link::flush`].
    pub fn wants_write(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Bytes that wait for the socket.
    pub fn queued_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Sends a frame: as much as the socket takes at once, the rest later.
    pub fn send(&mut self, kind: u8, header: &[u8], body: &[&[u8]]) -> Result<(), LinkError> {
        assert!(header.len() <= HEADER_BYTES_MAX, "a header of {} bytes", header.len());
        let bytes = header.len() + body.iter().map(|part| part.len()).sum::<usize>();
        if bytes > self.frame_bytes_max {
            return Err(LinkError::TooLong(bytes));
        }
        if self.outbox.len() > self.queued_bytes_max {
            return Err(LinkError::Backlog);
        }
        let mut head = [0; HEAD_BYTES + HEADER_BYTES_MAX];
        head[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
        head[4] = kind;
        head[5] = header.len() as u8;
        head[HEAD_BYTES..][..header.len()].copy_from_slice(header);
        self.write(&head[..HEAD_BYTES + header.len()], body)
    }

    fn write(&mut self, head: &[u8], body: &[&[u8]]) -> Result<(), LinkError> {
        if self.is_encrypted() {
            if let [part] = body {
                return self.write_encrypted(&[head, part]);
            }
            let parts: Vec<&[u8]> = std::iter::once(head).chain(body.iter().copied()).collect();
            return self.write_encrypted(&parts);
        }
        let mut written = 0;
        if self.outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); 1 + PARTS_MAX];
            let count = 1 + body.len().min(PARTS_MAX);
            for (slice, part) in slices.iter_mut().zip(std::iter::once(&head).chain(body)) {
                *slice = IoSlice::new(part);
            }
            written = match rustix::io::writev(&self.socket, &slices[..count]) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(errno) => return Err(errno.into()),
            };
        }
        for part in std::iter::once(&head).chain(body) {
            let skip = written.min(part.len());
            written -= skip;
            self.outbox.append(&part[skip..]);
        }
        Ok(())
    }

    pub(crate) fn write_encrypted(&mut self, parts: &[&[u8]]) -> Result<(), LinkError> {
        let tls = self.tls.as_mut().expect("an encrypted link");
        tls.encrypt(parts, &mut self.outbox, &mut self.inbox)?;
        self.flush()
    }

    /// Writes what waits.
    pub fn flush(&mut self) -> Result<(), LinkError> {
        while !self.outbox.is_empty() {
            match rustix::io::write(&self.socket, self.outbox.filled()) {
                Ok(count) => self.outbox.consume(count),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    // ----- receiving

    /// The beginning of the next frame, if its header is there. The body of the one before must have
    /// been taken.
    pub fn receive(&mut self) -> Result<Option<Head>, LinkError> {
        assert_eq!(self.body_left, 0, "the body of the frame before has not been taken");
        loop {
            if let Some((head, used)) = self.parse()? {
                self.inbox.consume(used);
                self.body_left = head.body_bytes;
                return Ok(Some(head));
            }
            if !self.fill(HEAD_BYTES + HEADER_BYTES_MAX)? {
                return Ok(None);
            }
        }
    }

    /// The next frame's beginning and the bytes that it takes.
    fn parse(&self) -> Result<Option<(Head, usize)>, LinkError> {
        let Some((prefix, rest)) = self.inbox.filled().split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [a, b, c, d, kind, header_bytes] = *prefix;
        let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        let count = usize::from(header_bytes);
        if bytes > self.frame_bytes_max {
            return Err(LinkError::TooLong(bytes));
        }
        let body_bytes = bytes.checked_sub(count).ok_or(LinkError::Malformed)?;
        if count > HEADER_BYTES_MAX {
            return Err(LinkError::Malformed);
        }
        let Some(shown) = rest.get(..count) else { return Ok(None) };
        let mut header = [0; HEADER_BYTES_MAX];
        header[..count].copy_from_slice(shown);
        Ok(Some((Head { kind, body_bytes, header, header_bytes }, HEAD_BYTES + count)))
    }

    /// Copies the next bytes of the current frame's body, as many as are there and fit. Gives how
    /// many; when that is fewer than wanted, the rest has not come yet.
    pub fn take(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let wanted = into.len().min(self.body_left);
        let mut done = 0;
        while done < wanted {
            let rest = &mut into[done..wanted];
            let count = rest.len().min(self.inbox.len());
            if count > 0 {
                rest[..count].copy_from_slice(&self.inbox.filled()[..count]);
                self.inbox.consume(count);
                done += count;
                continue;
            }
            let more = if self.tls.is_none() && rest.len() >= READ_STRAIGHT_BYTES {
                self.read_straight(rest).map(|count| {
                    done += count;
                    count > 0
                })
            } else {
                self.fill(1)
            };
            match more {
                Ok(true) => {}
                Ok(false) => break,
                // Told on the next call; first what there is.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.body_left -= done;
        Ok(done)
    }

    /// Reads to where the bytes belong, and what follows them into the inbox.
    fn read_straight(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let wanted = into.len();
        let slices = &mut [IoSliceMut::new(into), IoSliceMut::new(self.inbox.space(READ_BYTES))];
        let count = match rustix::io::readv(&self.socket, slices) {
            Ok(0) => return self.broken(LinkError::Closed),
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return self.broken(errno.into()),
        };
        self.inbox.commit(count.saturating_sub(wanted));
        Ok(count.min(wanted))
    }

    fn broken<T>(&mut self, error: LinkError) -> Result<T, LinkError> {
        self.broken = Some(error.clone());
        Err(error)
    }

    /// From now on without frames.
    pub fn into_pipe(self) -> Pipe {
        Pipe::new(self)
    }

    /// Copies bytes, whatever frame they belong to.
    pub(crate) fn read_bytes(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.body_left = into.len();
        let result = self.take(into);
        self.body_left = 0;
        result
    }

    /// Bytes of the current frame's body that have not been taken.
    pub fn body_left(&self) -> usize {
        self.body_left
    }

    /// The next frame as a whole, if it has come: its beginning and its body. Keeps what has come of
    /// it, so that this is not for long ones that others could send in pieces.
    pub fn receive_whole(&mut self) -> Result<Option<(Head, &[u8])>, LinkError> {
        assert_eq!(self.body_left, 0, "the body of the frame before has not been taken");
        loop {
            let parsed = self.parse()?;
            let missing = match &parsed {
                Some((head, used)) => (used + head.body_bytes).saturating_sub(self.inbox.len()),
                None => 1,
            };
            if let (Some((head, used)), 0) = (parsed, missing) {
                return Ok(Some((head, self.inbox.take_front(used, head.body_bytes))));
            }
            if !self.fill(missing.min(self.inbox.len().max(READ_BYTES)))? {
                self.release();
                return Ok(None);
            }
        }
    }

    /// Gives back memory that is not needed while nothing comes.
    fn release(&mut self) {
        self.inbox.release();
        self.outbox.release();
        if let Some(tls) = &mut self.tls {
            tls.cipher().release();
        }
    }

    /// Whether bytes that were read wait to be taken as frames, so that the socket alone would not
    /// tell of them.
    pub fn has_unread(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Reads once. Gives whether there is more than before.
    fn fill(&mut self, least: usize) -> Result<bool, LinkError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let before = self.inbox.len();
        let (into, bytes) = match &mut self.tls {
            Some(tls) => (tls.cipher(), 0),
            None => (&mut self.inbox, least),
        };
        let bytes = bytes.max(if self.trusted { READ_BYTES } else { STRANGER_READ_BYTES });
        let count = match rustix::io::read(&self.socket, &mut into.space(bytes)[..bytes]) {
            Ok(0) => return self.broken(LinkError::Closed),
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => return self.broken(errno.into()),
        };
        into.commit(count);
        if !self.trusted {
            self.stranger_bytes += count;
            if self.stranger_bytes > HANDSHAKE_BYTES_MAX {
                return self.broken(LinkError::TooMuch);
            }
        }
        if let Err(error) = self.advance() {
            self.broken = Some(error);
        }
        match &self.broken {
            Some(error) if self.inbox.len() == before => Err(error.clone()),
            _ => Ok(self.inbox.len() > before),
        }
    }

    /// Has TLS do what it can.
    fn advance(&mut self) -> Result<(), LinkError> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let result = tls.advance(&mut self.outbox, &mut self.inbox);
        // An alert too, if the socket takes it.
        let flushed = self.flush();
        if result? { flushed } else { Err(LinkError::Closed) }
    }

    /// Goes on with the handshake. Gives whether it is done.
    pub fn handshake(&mut self) -> Result<bool, LinkError> {
        self.flush()?;
        while !self.is_ready() {
            let before = self.stranger_bytes;
            self.fill(1)?;
            if self.stranger_bytes == before {
                break;
            }
        }
        Ok(self.is_ready())
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
#[path = "link_tests.rs"]
mod tests;
