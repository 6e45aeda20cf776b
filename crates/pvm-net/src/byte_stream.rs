//! A connection as a stream of bytes, for users with a framing of their own.
use crate::link::{Link, LinkError};
use crate::socket;
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that an encrypted stream takes at a time. It keeps what it has taken, so this also bounds what it holds back.
const WRITE_BYTES_MAX: usize = 512 << 10;

/// A connection without frames. Its owner watches the socket.
#[derive(Debug)]
pub struct ByteStream(Link);

impl ByteStream {
    pub(crate) fn new(link: Link) -> ByteStream {
        ByteStream(link)
    }

    /// Sends bytes. Returns how many were taken, beginning with the first; fewer than all if the socket is full.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<usize, LinkError> {
        if self.is_encrypted() {
            return self.write_by(bytes.len(), &mut |into| {
                let next;
                (next, bytes) = bytes.split_at(into.len());
                into.copy_from_slice(next);
            });
        }
        self.flush()?;
        if self.wants_write() {
            return Ok(0);
        }
        match socket::write(&self.0, &[IoSlice::new(bytes)]) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends bytes on an encrypted stream. `fill` copies them, piece by piece, to where it is told. Returns how many
    /// were taken; fewer than `bytes` if the socket is full.
    pub fn write_by(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<usize, LinkError> {
        let link = &mut self.0;
        link.flush()?;
        if link.wants_write() {
            return Ok(0);
        }
        let bytes = bytes.min(WRITE_BYTES_MAX);
        link.write_encrypted_by(bytes, fill)?;
        Ok(bytes)
    }

    /// Gives memory back that is not needed while nothing is carried.
    pub fn release(&mut self) {
        self.0.release();
    }

    /// Writes what waits for the socket. In clear, only the end of the handshake can wait.
    pub fn flush(&mut self) -> Result<(), LinkError> {
        self.0.flush()
    }

    /// Returns whether something waits for the socket.
    pub fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Reads bytes. Returns how many came, zero if there are none now.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.0.read_bytes(into)
    }

    /// Reads up to `most` bytes of an encrypted stream and passes them to `take`, piece by piece, from where they were
    /// decrypted. So they are copied once. Returns how many came, zero if there are none now.
    pub fn read_by(&mut self, most: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
        self.0.read_by(most, take)
    }

    /// Returns whether bytes wait to be read without an event of the socket.
    pub fn has_unread(&self) -> bool {
        self.0.has_unread()
    }

    /// Returns the socket, if its bytes are the bytes of the stream. That is so in clear, once everything that came
    /// with the handshake has been read.
    pub fn plain_socket(&self) -> Option<BorrowedFd<'_>> {
        let plain = !self.0.is_encrypted() && !self.0.has_unread() && !self.0.wants_write();
        plain.then(|| self.0.as_fd())
    }

    /// Returns whether the stream is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.is_encrypted()
    }
}

impl AsFd for ByteStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
