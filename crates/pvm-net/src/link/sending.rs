//! The sending side of a link.
use super::{HEAD_BYTES, HEADER_BYTES_MAX, Link, LinkError};
use crate::socket;
use rustix::io::Errno;
use std::io::IoSlice;

/// The number of parts of a body that one system call writes.
pub(super) const PARTS_MAX: usize = 16;
/// The number of bytes of a body that an encrypted link takes at a time. The link keeps a copy of these bytes.
pub(super) const PUSH_BYTES_MAX: usize = 512 << 10;

/// The head and the header of a frame, as they are sent.
#[derive(Clone, Copy)]
pub struct Lead {
    bytes: [u8; HEAD_BYTES + HEADER_BYTES_MAX],
    length: usize,
}

impl Lead {
    /// Makes the beginning of a frame. Panics if the header is longer than [`HEADER_BYTES_MAX`].
    pub fn new(kind: u8, header: &[u8], body_bytes: usize) -> Lead {
        let mut bytes = [0; HEAD_BYTES + HEADER_BYTES_MAX];
        bytes[..4].copy_from_slice(&((header.len() + body_bytes) as u32).to_le_bytes());
        bytes[4] = kind;
        bytes[5] = header.len() as u8;
        bytes[HEAD_BYTES..][..header.len()].copy_from_slice(header);
        Lead { bytes, length: HEAD_BYTES + header.len() }
    }

    /// Returns the bytes to send.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Link {
    /// Returns whether data that is sent now goes directly to the socket.
    pub fn has_room(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Returns whether bytes wait for the socket. If so, the caller must watch the socket for room and then call
    /// [`Link::flush`].
    pub fn wants_write(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Returns how many bytes wait for the socket.
    pub fn queued_bytes(&self) -> usize {
        self.outbox.len()
    }

    /// Queues a frame. The next [`Link::flush`] sends it together with all other queued frames.
    pub fn queue(&mut self, kind: u8, header: &[u8], body: &[u8]) -> Result<(), LinkError> {
        let lead = self.lead_of(kind, header, body.len())?;
        self.append(&[lead.as_slice(), body])
    }

    /// Checks that a frame may be sent. Returns its beginning.
    fn lead_of(&mut self, kind: u8, header: &[u8], body_bytes: usize) -> Result<Lead, LinkError> {
        self.check(header, body_bytes)?;
        if self.outbox.is_empty() {
            self.oversize_bytes = 0;
        }
        if self.outbox.len() > self.queued_bytes_max.saturating_add(self.oversize_bytes) {
            return Err(LinkError::Backlog);
        }
        if body_bytes > self.queued_bytes_max {
            self.oversize_bytes = self.oversize_bytes.max(body_bytes);
        }
        Ok(Lead::new(kind, header, body_bytes))
    }

    /// Sends a frame. Bytes that the socket does not take at once are copied and sent later.
    pub fn send(&mut self, kind: u8, header: &[u8], body: &[&[u8]]) -> Result<(), LinkError> {
        let lead = self.lead_of(kind, header, body.iter().map(|part| part.len()).sum())?;
        let lead = lead.as_slice();
        if self.is_encrypted() {
            if let [part] = body {
                return self.write_encrypted(&[lead, part]);
            }
            let parts: Vec<&[u8]> = std::iter::once(lead).chain(body.iter().copied()).collect();
            return self.write_encrypted(&parts);
        }
        let mut written = if self.outbox.is_empty() { self.write_parts(lead, body)? } else { 0 };
        for part in std::iter::once(&lead).chain(body) {
            let skip = written.min(part.len());
            written -= skip;
            self.outbox.append(&part[skip..]);
        }
        Ok(())
    }

    /// Begins a frame whose body follows by [`Link::push`], and sends as much of `first`, the beginning of the body, as
    /// the link takes. Returns the number of bytes of the body that the link has taken. Nothing else can be sent before
    /// the body is complete. A link in clear does not copy the body; an encrypted link takes at most `PUSH_BYTES_MAX`
    /// bytes at a time, and keeps those that the socket does not accept.
    pub fn begin(&mut self, kind: u8, header: &[u8], body_bytes: usize, first: &[u8]) -> Result<usize, LinkError> {
        self.check(header, body_bytes)?;
        let first = &first[..first.len().min(body_bytes)];
        let lead = Lead::new(kind, header, body_bytes);
        let lead = lead.as_slice();
        self.flush()?;
        let taken = if !self.outbox.is_empty() {
            self.append(&[lead])?;
            0
        } else if self.is_encrypted() {
            let first = &first[..first.len().min(PUSH_BYTES_MAX)];
            self.write_encrypted(&[lead, first])?;
            first.len()
        } else {
            let written = self.write_parts(lead, &[first])?;
            self.outbox.append(&lead[written.min(lead.len())..]);
            written.saturating_sub(lead.len())
        };
        self.body_owed = body_bytes - taken;
        Ok(taken)
    }

    /// Sends more of a frame's body. Returns how many bytes the link has taken, as [`Link::begin`] does.
    pub fn push(&mut self, part: &[u8]) -> Result<usize, LinkError> {
        self.flush()?;
        let part = &part[..part.len().min(self.body_owed)];
        let taken = if !self.outbox.is_empty() {
            0
        } else if self.is_encrypted() {
            let part = &part[..part.len().min(PUSH_BYTES_MAX)];
            self.write_encrypted(&[part])?;
            part.len()
        } else {
            self.write_parts(part, &[])?
        };
        self.body_owed -= taken;
        Ok(taken)
    }

    /// Returns how many bytes of the body have not been pushed.
    pub fn body_owed(&self) -> usize {
        self.body_owed
    }

    fn check(&self, header: &[u8], body_bytes: usize) -> Result<(), LinkError> {
        assert!(header.len() <= HEADER_BYTES_MAX, "a header of {} bytes", header.len());
        assert_eq!(self.body_owed, 0, "the body of the frame before is not through");
        let bytes = header.len() + body_bytes;
        if bytes > self.frame_bytes_max { Err(LinkError::TooLong(bytes)) } else { Ok(()) }
    }

    /// Writes once, on a link in clear. Returns how many bytes the socket has taken.
    fn write_parts(&self, lead: &[u8], body: &[&[u8]]) -> Result<usize, LinkError> {
        let mut slices = [IoSlice::new(&[]); 1 + PARTS_MAX];
        let count = 1 + body.len().min(PARTS_MAX);
        for (slice, part) in slices.iter_mut().zip(std::iter::once(&lead).chain(body)) {
            *slice = IoSlice::new(part);
        }
        match socket::write(&self.socket, &slices[..count]) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Appends bytes to those that wait for the socket.
    pub(super) fn append(&mut self, parts: &[&[u8]]) -> Result<(), LinkError> {
        match &mut self.tls {
            Some(tls) => tls.encrypt(parts, &mut self.outbox)?,
            None => parts.iter().for_each(|part| self.outbox.append(part)),
        }
        Ok(())
    }

    pub(crate) fn write_encrypted(&mut self, parts: &[&[u8]]) -> Result<(), LinkError> {
        let tls = self.tls.as_mut().expect("an encrypted link");
        tls.encrypt(parts, &mut self.outbox)?;
        self.flush()
    }

    /// Encrypts and sends `bytes` bytes; `fill` copies them, piece by piece, into the memory that it is given.
    pub(crate) fn write_encrypted_by(
        &mut self,
        bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), LinkError> {
        let tls = self.tls.as_mut().expect("an encrypted link");
        tls.encrypt_by(bytes, fill, &mut self.outbox)?;
        self.flush()
    }

    /// Sends a TLS record of any type and content.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn send_record(&mut self, kind: u8, content: &[u8]) -> Result<(), LinkError> {
        self.tls.as_mut().expect("an encrypted link").encrypt_record(kind, content, &mut self.outbox);
        self.flush()
    }

    /// Writes the bytes that wait for the socket.
    pub fn flush(&mut self) -> Result<(), LinkError> {
        while !self.outbox.is_empty() {
            match socket::write(&self.socket, &[IoSlice::new(self.outbox.filled())]) {
                Ok(count) => self.outbox.consume(count),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.is_unwritable |= errno == Errno::PIPE;
                    return Err(errno.into());
                }
            }
        }
        self.outbox.release_large();
        Ok(())
    }
}
