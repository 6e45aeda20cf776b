//! The receiving side of a link.
use super::{ByteStream, HEAD_BYTES, HEADER_BYTES_MAX, Head, Link, LinkError};
use crate::records::Clear;
use rustix::io::Errno;
use std::io::IoSliceMut;

/// The number of bytes that a peer can send before it is authenticated.
///
/// * Filled by: whoever reaches the port
/// * Setting: none, a handshake takes less than 2 KiB
/// * Reached: the connection is closed
/// * Test: `one_who_says_too_much_before_it_is_known_is_turned_away`
pub const HANDSHAKE_BYTES_MAX: usize = 8 << 10;
/// Bytes read at a time from a peer that is not authenticated.
const STRANGER_READ_BYTES: usize = 4 << 10;
/// Bytes read first when data arrives on a quiet link: most frames of a control link are short, and the memory for a
/// longer read would have to be cleared.
const FIRST_READ_BYTES: usize = 4 << 10;
/// Bytes read at a time, once a read has returned as many bytes as were asked for.
const READ_BYTES: usize = 64 << 10;
/// Bytes read at a time on an encrypted link, once a read has returned `READ_BYTES` bytes. Long reads save both hosts
/// time, since after each read TCP sends a packet that announces the free room.
const BUSY_READ_BYTES: usize = 256 << 10;
/// The remaining part of a body is read directly to its destination if it has at least this number of bytes.
const READ_STRAIGHT_BYTES: usize = 4 << 10;

/// How much a link reads at a time. It reads more after a read has returned as many bytes as were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReadSize {
    First,
    Usual,
    Busy,
}

impl ReadSize {
    fn bytes(self) -> usize {
        match self {
            ReadSize::First => FIRST_READ_BYTES,
            ReadSize::Usual => READ_BYTES,
            ReadSize::Busy => BUSY_READ_BYTES,
        }
    }
}

impl Link {
    /// Returns the beginning of the next frame, if the frame's header has arrived. The body of the previous frame must
    /// have been taken.
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

    /// Returns the beginning of the next frame, and the number of bytes that this beginning takes.
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

    /// Copies the next bytes of the current frame's body: as many as have arrived and as fit into `into`. Returns how
    /// many bytes were copied: fewer than fit if the other bytes have not arrived.
    pub fn take(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.take_with(into, READ_BYTES)
    }

    /// As [`Link::take`], for a body that the next frame continues: reads no more than the head of that frame, so that
    /// the next frame's body is read straight to its destination too.
    pub fn take_continued(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.take_with(into, HEAD_BYTES)
    }

    /// Copies the next bytes of the body. Where they are read straight to their destination, at most `ahead` bytes more
    /// are read.
    fn take_with(&mut self, into: &mut [u8], ahead: usize) -> Result<usize, LinkError> {
        let wanted = into.len().min(self.body_left);
        let (mut done, mut is_drained) = (0, false);
        while done < wanted {
            let rest = &mut into[done..wanted];
            let count = rest.len().min(self.inbox.len());
            if count > 0 {
                rest[..count].copy_from_slice(&self.inbox.filled()[..count]);
                self.inbox.consume(count);
                done += count;
                continue;
            }
            if is_drained {
                break;
            }
            let more = if self.tls.is_none() && rest.len() >= READ_STRAIGHT_BYTES {
                self.read_straight(rest, ahead).map(|count| {
                    done += count;
                    count > 0 && !self.is_drained
                })
            } else {
                let mut straight = 0;
                let more = self.fill_by(1, if self.tls.is_some() { rest.len() } else { 0 }, &mut |bytes| {
                    rest[straight..][..bytes.len()].copy_from_slice(bytes);
                    straight += bytes.len();
                });
                done += straight;
                is_drained = self.is_drained;
                more
            };
            match more {
                Ok(true) => {}
                Ok(false) => break,
                // The error is returned by the next call.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.body_left -= done;
        Ok(done)
    }

    /// Reads a body directly to its destination, and up to `ahead` bytes after it into the inbox.
    fn read_straight(&mut self, into: &mut [u8], ahead: usize) -> Result<usize, LinkError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let wanted = into.len();
        let space = &mut self.inbox.space(ahead)[..ahead];
        let room = wanted + space.len();
        let slices = &mut [IoSliceMut::new(into), IoSliceMut::new(space)];
        let count = match rustix::io::readv(&self.socket, slices) {
            Ok(0) => return self.end(),
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return self.broken(errno.into()),
        };
        self.is_drained = count < room;
        self.inbox.commit(count.saturating_sub(wanted));
        Ok(count.min(wanted))
    }

    fn end<T>(&mut self) -> Result<T, LinkError> {
        self.ended = true;
        self.broken(LinkError::Closed)
    }

    fn broken<T>(&mut self, error: LinkError) -> Result<T, LinkError> {
        self.broken = Some(error.clone());
        Err(error)
    }

    /// Turns the link into a stream without frames.
    pub fn into_byte_stream(self) -> ByteStream {
        ByteStream::new(self)
    }

    /// Copies bytes of the stream.
    pub(crate) fn read_bytes(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.body_left = into.len();
        let result = self.take(into);
        self.body_left = 0;
        result
    }

    /// Passes at most `most` bytes of the stream to `take`. Bytes that this call reads from the socket reach `take`
    /// without a copy.
    pub(crate) fn read_by(&mut self, most: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
        if self.inbox.is_empty() {
            let mut done = 0;
            let mut count = |bytes: &[u8]| {
                done += bytes.len();
                take(bytes);
            };
            self.fill_by(1, most, &mut count)?;
            if done > 0 || self.inbox.is_empty() {
                return Ok(done);
            }
        }
        let count = most.min(self.inbox.len());
        take(self.inbox.take_front(0, count));
        Ok(count)
    }

    /// Returns how many bytes of the current frame's body have not been taken.
    pub fn body_left(&self) -> usize {
        self.body_left
    }

    /// Notes that the socket may have become readable, so that the next [`Link::receive_whole`] reads.
    pub fn expect_more(&mut self) {
        self.is_drained = false;
    }

    /// Returns whether a read since [`Link::expect_more`] has emptied the socket. The system reports what comes later.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Returns the next frame as a whole, if all of it has arrived. After a read that has emptied the socket, returns
    /// `None` once without another read. The link keeps an incomplete frame in memory, so
    /// this is not for long frames: a peer that sends only a part of a frame keeps this memory in use.
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
            let is_drained = std::mem::take(&mut self.is_drained);
            if is_drained || !self.fill(missing.min(self.inbox.len().max(READ_BYTES)))? {
                self.release();
                return Ok(None);
            }
        }
    }

    /// Makes the next read longer if this one has returned as many bytes as were asked for.
    fn note_read(&mut self, count: usize, asked: usize) {
        if count == asked {
            let is_long = self.tls.is_some() && self.read_size >= ReadSize::Usual;
            self.read_size = if is_long { ReadSize::Busy } else { ReadSize::Usual };
        }
    }

    /// Frees memory that is not needed while no data arrives.
    pub(crate) fn release(&mut self) {
        self.read_size = ReadSize::First;
        self.inbox.release();
        self.outbox.release();
        if let Some(tls) = &mut self.tls {
            tls.cipher().release();
        }
    }

    /// Returns whether bytes were read that have not been taken. No event of the socket reports them.
    pub fn has_unread(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Returns whether the other side has closed the connection in the normal way. If so, everything that it sent has
    /// arrived. If this is false after an error, the connection has broken.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether a write has shown that the other side takes nothing any more. What it sent before can still be read, and
    /// how the connection ends.
    pub fn is_unwritable(&self) -> bool {
        self.is_unwritable
    }

    /// Returns whether nothing more can be read from the socket.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Reads once. Returns whether new bytes have arrived.
    fn fill(&mut self, least: usize) -> Result<bool, LinkError> {
        self.fill_by(least, 0, &mut |_| {})
    }

    /// Reads once, or twice if the first read ends in the middle of an encrypted record and the socket may have more.
    /// Up to `straight` decrypted bytes are passed to `take`. Returns whether new bytes have arrived, those for `take`
    /// included.
    fn fill_by(&mut self, least: usize, straight: usize, take: &mut dyn FnMut(&[u8])) -> Result<bool, LinkError> {
        let size = self.read_size;
        let more = self.read_once(least, straight, take)?;
        if !more && self.read_size > size { self.read_once(least, straight, take) } else { Ok(more) }
    }

    fn read_once(&mut self, least: usize, straight: usize, take: &mut dyn FnMut(&[u8])) -> Result<bool, LinkError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let before = self.inbox.len();
        let bytes = if self.trusted { self.read_size.bytes() } else { STRANGER_READ_BYTES };
        // `has_room` is false if there is no memory for the bytes of a long frame.
        let (into, bytes, has_room) = match &mut self.tls {
            Some(tls) => {
                let cipher = tls.cipher();
                let comes = cipher.len() + bytes;
                // Memory in the inbox is reserved only if the inbox is long already: bytes that are passed directly to
                // `take` need none.
                let is_long = self.inbox.len() > BUSY_READ_BYTES;
                let has_room = cipher.reserve(bytes) && (!is_long || self.inbox.reserve(comes));
                (cipher, bytes, has_room)
            }
            None => {
                let has_room = self.inbox.reserve(bytes.max(least));
                (&mut self.inbox, bytes.max(least), has_room)
            }
        };
        if !has_room {
            return self.broken(Errno::NOMEM.into());
        }
        let count = match rustix::io::read(&self.socket, &mut into.space(bytes)[..bytes]) {
            Ok(0) => return self.end(),
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(errno) => return self.broken(errno.into()),
        };
        into.commit(count);
        self.is_drained = count < bytes;
        if self.trusted {
            self.note_read(count, bytes);
        } else {
            self.stranger_bytes += count;
            if self.stranger_bytes > HANDSHAKE_BYTES_MAX {
                return self.broken(LinkError::TooMuch);
            }
        }
        let (left, result) = self.advance_by(straight, take);
        if let Err(error) = result {
            self.broken = Some(error);
        }
        let more = self.inbox.len() > before || left < straight;
        match &self.broken {
            Some(error) if !more => Err(error.clone()),
            _ => Ok(more),
        }
    }

    /// Runs TLS as far as possible.
    pub(super) fn advance(&mut self) -> Result<(), LinkError> {
        self.advance_by(0, &mut |_| {}).1
    }

    /// Runs TLS as far as possible, and passes up to `straight` bytes to `take`. Returns how many of the `straight`
    /// bytes have not arrived.
    fn advance_by(&mut self, straight: usize, take: &mut dyn FnMut(&[u8])) -> (usize, Result<(), LinkError>) {
        let Some(tls) = &mut self.tls else { return (straight, Ok(())) };
        let mut clear = Clear::new(straight, take, &mut self.inbox);
        let waiting_bytes = self.outbox.len();
        let result = tls.advance(&mut self.outbox, &mut clear);
        let left = clear.straight_left();
        // The flush also sends a TLS alert, if there is one and the socket takes it.
        let answers = !self.trusted || self.outbox.len() > waiting_bytes;
        let flushed = if answers { self.flush() } else { Ok(()) };
        let result = match result {
            // A failed flush is ignored: a peer that reads nothing more may have sent data that can still be received.
            Ok(true) if self.trusted => Ok(()),
            Ok(true) => flushed,
            Ok(false) => Err(LinkError::Closed),
            Err(error) => Err(error.into()),
        };
        (left, result)
    }

    /// Continues the handshake. Returns whether it is complete.
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
