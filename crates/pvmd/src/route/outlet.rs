//! What goes out on a data link.
use super::Failure;
use super::taking::Body;
use pvm_core::flows::frames::{write_credit, write_piece};
use pvm_core::flows::{Credit, Flows, Piece};
use pvm_core::tid::Tid;
use pvm_net::{LinkError, Pipe};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;

/// Frames gathered for one write, in bytes.
const GATHER_BYTES: usize = 32 << 10;
/// A piece of a body up to this is copied behind its head, in bytes; a longer one is written from
/// where it lies.
const COPY_BYTES_MAX: usize = 4 << 10;

/// Bytes written to one link before others have their turn.
const TURN_BYTES: usize = 1 << 20;

/// What is being written. Never more than one gathering: the rest waits in the flows.
pub(super) struct Outlet {
    /// Heads, short bodies, credit; and how much of that is written.
    bytes: Vec<u8>,
    at: usize,
    /// A long piece that follows.
    piece: Option<(Rc<Body>, Range<usize>)>,
    /// Where pieces are put to be encrypted: others may still write where they lie.
    copy: Vec<u8>,
    /// The socket may take more.
    pub writable: bool,
}

impl Default for Outlet {
    fn default() -> Outlet {
        Outlet { bytes: Vec::new(), at: 0, piece: None, copy: Vec::new(), writable: true }
    }
}

impl Outlet {
    /// Credit goes before what waits in the flows.
    pub fn add_credit(&mut self, credit: &Credit) {
        if let Some((body, range)) = self.piece.take() {
            // The frame must not be cut in two: its rest is copied.
            append(&mut self.bytes, &body, range);
        }
        write_credit(credit, &mut self.bytes);
    }

    /// Writes until the socket is full, nothing can go, or others should have their turn: then there
    /// may be more at once, and it says so.
    pub fn push(&mut self, pipe: &mut Pipe, host: Tid, flows: &mut Flows<Body>) -> Result<bool, Failure> {
        if self.writable && pipe.wants_write() {
            pipe.flush()?;
            self.writable = !pipe.wants_write();
        }
        let mut total = 0;
        while self.writable && total < TURN_BYTES {
            if self.at == self.bytes.len() && self.piece.is_none() {
                self.gather(host, flows);
                if self.bytes.is_empty() {
                    return Ok(false);
                }
            }
            let written = self.write(pipe)?;
            self.written(written);
            total += written;
            // Less than all was taken: the socket tells when it can take more.
            self.writable = (self.at == self.bytes.len() && self.piece.is_none()) && !pipe.wants_write();
        }
        Ok(self.writable)
    }

    fn gather(&mut self, host: Tid, flows: &mut Flows<Body>) {
        self.bytes.clear();
        self.at = 0;
        while self.bytes.len() < GATHER_BYTES {
            let Some(piece) = flows.next(host) else { return };
            write_piece(&piece, &mut self.bytes);
            let (body, range) = match piece {
                Piece::Along { frame, .. } => {
                    self.bytes.extend_from_slice(&frame);
                    continue;
                }
                Piece::Start { first, body, .. } => (body, 0..first),
                Piece::Chunk { range, body, .. } => (body, range),
            };
            if range.len() <= COPY_BYTES_MAX {
                append(&mut self.bytes, &body, range);
            } else {
                self.piece = Some((body, range));
                return;
            }
        }
    }

    /// Writes once; gives how many bytes were taken.
    fn write(&mut self, pipe: &mut Pipe) -> Result<usize, LinkError> {
        let head = &self.bytes[self.at..];
        let Some((body, range)) = &self.piece else { return pipe.write(&[IoSlice::new(head)]) };
        match &**body {
            Body::Bytes(bytes) => pipe.write(&[IoSlice::new(head), IoSlice::new(&bytes[range.clone()])]),
            Body::Remote(remote) if pipe.is_encrypted() => {
                if self.copy.len() < range.len() {
                    self.copy.resize(range.len(), 0);
                }
                let copy = &mut self.copy[..range.len()];
                remote.read(range.start, copy);
                pipe.write(&[IoSlice::new(head), IoSlice::new(copy)])
            }
            Body::Remote(remote) => match remote.write_to(pipe.as_fd(), head, range.start, range.len()) {
                Ok(count) => Ok(count),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
                Err(error) => Err(Errno::from_io_error(&error).map_or(LinkError::Closed, LinkError::from)),
            },
        }
    }

    fn written(&mut self, count: usize) {
        let head = count.min(self.bytes.len() - self.at);
        self.at += head;
        if let Some((_, range)) = &mut self.piece {
            range.start += count - head;
            if range.start == range.end {
                // The sender may reuse the memory.
                self.piece = None;
            }
        }
    }
}

fn append(bytes: &mut Vec<u8>, body: &Body, range: Range<usize>) {
    match body {
        Body::Bytes(body) => bytes.extend_from_slice(&body[range]),
        Body::Remote(remote) => {
            let start = bytes.len();
            bytes.resize(start + range.len(), 0);
            remote.read(range.start, &mut bytes[start..]);
        }
    }
}
