//! Sends frames in pieces. The caller decides how many bytes of a frame the link queues.
use super::sending::{PARTS_MAX, PUSH_BYTES_MAX};
use super::{Lead, Link, LinkError};
use crate::socket;
use rustix::io::Errno;
use std::io::IoSlice;

/// Extra memory reserved for encryption: one byte for each `EXTRA_PART` bytes of a frame, plus `EXTRA_BYTES` bytes.
const EXTRA_PART: usize = 128;
const EXTRA_BYTES: usize = 256;

impl Link {
    /// Returns the beginning of a frame. The caller sends all bytes of such a frame by [`Link::try_write`] and
    /// [`Link::write_or_queue`]. [`Lead`] is the same without an allocation.
    pub fn frame_head(kind: u8, header: &[u8], body_bytes: usize) -> Vec<u8> {
        Lead::new(kind, header, body_bytes).as_slice().to_vec()
    }

    /// Sends as many of a frame's next bytes as the socket takes. Returns how many bytes were sent: zero while other
    /// bytes wait for the socket.
    pub fn try_write(&mut self, parts: &[&[u8]]) -> Result<usize, LinkError> {
        self.flush()?;
        if !self.outbox.is_empty() {
            return Ok(0);
        }
        if self.is_encrypted() {
            let mut left = PUSH_BYTES_MAX;
            let first = |part: &&'_ [u8]| {
                let count = part.len().min(left);
                left -= count;
                count
            };
            let counts: Vec<usize> = parts.iter().map(first).collect();
            let taken: Vec<&[u8]> = parts.iter().zip(counts).map(|(part, count)| &part[..count]).collect();
            self.write_encrypted(&taken)?;
            return Ok(PUSH_BYTES_MAX - left);
        }
        let mut slices = [IoSlice::new(&[]); PARTS_MAX];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        match socket::write(&self.socket, &slices[..parts.len().min(PARTS_MAX)]) {
            Ok(count) => Ok(count),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends a frame's next bytes. All bytes that the socket does not take are queued, without a limit. Returns false,
    /// and takes nothing, if there is no memory for the queue.
    pub fn write_or_queue(&mut self, parts: &[&[u8]]) -> Result<bool, LinkError> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        if !self.outbox.reserve(bytes + bytes / EXTRA_PART + EXTRA_BYTES) {
            return Ok(false);
        }
        self.append(parts)?;
        self.flush()?;
        Ok(true)
    }
}
