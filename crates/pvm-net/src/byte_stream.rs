//! A connection as a pipe of bytes, for those who have a framing of their own.
use crate::link::{Link, LinkError};
use crate::socket;
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes that an encrypted pipe takes in one go. What it has taken lies in its own memory, so that
/// this and a little more is what a pipe holds back.
const WRITE_BYTES_MAX: usize = 512 << 10;

/// A connection without frames. Whoever holds it watches its socket.
#[derive(Debug)]
pub struct ByteStream(Link);

impl ByteStream {
    pub(crate) fn new(link: Link) -> ByteStream {
        ByteStream(link)
    }

    /// Sends bytes. Gives how many were taken, from the front; fewer than all when the socket is
    /// full.
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

    /// Sends so many bytes on an encrypted pipe, which `fill` copies from the front, piece by piece, to where it is
    /// told to. Gives how many were taken; fewer than all when the socket is full.
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

    /// Writes what was taken and waits. A pipe in clear can only have the end of its handshake.
    pub fn flush(&mut self) -> Result<(), LinkError> {
        self.0.flush()
    }

    /// Whether something that was taken waits for the socket.
    pub fn wants_write(&self) -> bool {
        self.0.wants_write()
    }

    /// Reads bytes. Gives how many; none when there are none now.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        self.0.read_bytes(into)
    }

    /// Reads up to `most` bytes of an encrypted pipe and hands them out piece by piece where they were
    /// decrypted, so that they are copied once. Gives how many; none when there are none now.
    pub fn read_by(&mut self, most: usize, take: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
        self.0.read_by(most, take)
    }

    /// Whether bytes wait to be read of which the socket would not tell.
    pub fn has_unread(&self) -> bool {
        self.0.has_unread()
    }

    /// The socket, if what is read from it and written to it are the pipe's bytes themselves. So it
    /// is on a pipe in clear once all that came with the handshake has been read.
    pub fn plain_socket(&self) -> Option<BorrowedFd<'_>> {
        let plain = !self.0.is_encrypted() && !self.0.has_unread() && !self.0.wants_write();
        plain.then(|| self.0.as_fd())
    }

    /// Whether what is written is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.is_encrypted()
    }
}

impl AsFd for ByteStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
