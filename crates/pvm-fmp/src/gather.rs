//! Gather I/O: bodies go from shared memory into a socket by one write, and from a socket into shared memory.
use crate::heap::Block;
use crate::remote::Remote;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

fn part(address: *const u8, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: address.cast_mut().cast(), iov_len: bytes }
}

/// The parts of one write to a socket, in order. They are written from where they lie, without a copy.
pub struct GatherList<'a> {
    list: Vec<libc::iovec>,
    lifetime: PhantomData<&'a [u8]>,
}

/// The largest number of parts that the system takes in one call.
const GATHER_PARTS_MAX: usize = 1024;

impl<'a> GatherList<'a> {
    /// Makes a list that begins with these bytes.
    pub fn new(bytes: &'a [u8]) -> GatherList<'a> {
        GatherList { list: vec![part(bytes.as_ptr(), bytes.len())], lifetime: PhantomData }
    }

    /// Adds bytes. Parts beyond the number that the system takes are left out, here and in [`GatherList::add_remote`].
    pub fn add(&mut self, bytes: &'a [u8]) {
        self.push(bytes.as_ptr(), bytes.len());
    }

    /// Adds a range of a body. Panics past its end.
    pub fn add_remote(&mut self, remote: &'a Remote, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= remote.len());
        let (mut skip, mut left) = (range.start, range.len());
        for fragment in remote.fragments() {
            let (address, bytes) = (fragment.address, fragment.bytes());
            if left == 0 {
                break;
            }
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let here = left.min(bytes - skip);
            self.push(address.wrapping_add(skip), here);
            (skip, left) = (0, left - here);
        }
    }

    /// Adds a range of a block of this process. Panics past the end of the block.
    pub fn add_block(&mut self, block: &'a Block, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= block.capacity());
        self.push(block.address().wrapping_add(range.start), range.len());
    }

    fn push(&mut self, address: *const u8, bytes: usize) {
        if bytes > 0 && self.list.len() < GATHER_PARTS_MAX {
            self.list.push(part(address, bytes));
        }
    }

    /// Returns the length of all parts in bytes.
    pub fn total_bytes(&self) -> usize {
        self.list.iter().map(|part| part.iov_len).sum()
    }

    /// Writes the parts with one call. Returns how many bytes the socket took.
    pub fn write_to(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: all zeroes is a valid header: no address, no control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (self.list.as_mut_ptr(), self.list.len() as _);
        // SAFETY: the parts are slices, and fragments and blocks that were checked to lie in a mapping; `self`
        // borrows the slices and the bodies that keep the mappings. The kernel reads them, whatever their bytes are.
        let written = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }
}

impl Block {
    /// Reads from a socket: up to `count` bytes to `at` in this block, and the bytes that follow them into `behind`.
    /// Returns how many bytes were read. Panics past the end of the block, and while the block is lent.
    pub fn read_from(&self, socket: BorrowedFd<'_>, at: usize, count: usize, behind: &mut [u8]) -> io::Result<usize> {
        self.check_writable(at, count);
        let parts = [part(self.address().wrapping_add(at), count), part(behind.as_mut_ptr(), behind.len())];
        // SAFETY: the first range was checked to lie in the block, which only this process writes and
        // to which there are no references; the second one is a slice lent for writing.
        let read = unsafe { libc::readv(socket.as_raw_fd(), parts.as_ptr(), 2) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::gather_pair;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_body_goes_through_a_socket_and_back_into_shared_memory() {
        let body: Vec<u8> = (0..20_000_u32).map(|at| (at * 7) as u8).collect();
        let (remote, mut other) = gather_pair(&body, &[5000, 10_000, 5000]);
        let (near, far) = UnixStream::pair().unwrap();
        let mut parts = GatherList::new(b"head");
        parts.add_remote(&remote, 4000..9000);
        parts.add(b"");
        parts.add_remote(&remote, 9000..16_000);
        assert_eq!(parts.write_to(near.as_fd()).unwrap(), 12_004);
        let block = other.allocate(20_000).unwrap();
        let (mut head, mut behind) = ([0; 4], [0; 100]);
        (&far).read_exact(&mut head).unwrap();
        (&near).write_all(b"behind").unwrap();
        assert_eq!(block.read_from(far.as_fd(), 1000, 12_000, &mut behind).unwrap(), 12_006);
        let mut copy = vec![0; 12_000];
        block.read(1000, &mut copy);
        assert_eq!((&head, &behind[..6], &copy[..]), (b"head", &b"behind"[..], &body[4000..16_000]));
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn nothing_is_read_past_the_end_of_a_block() {
        let (_, mut other) = gather_pair(&[1; 1000], &[1000]);
        let block = other.allocate(1000).unwrap();
        let (_near, far) = UnixStream::pair().unwrap();
        let _ = block.read_from(far.as_fd(), block.capacity(), 1, &mut []);
    }
}
