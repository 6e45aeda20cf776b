//! Bodies straight from shared memory into a socket, and from a socket into shared memory.
use crate::arrival::{FRAGMENTS_MAX, Fragment, Remote};
use crate::heap::Block;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

fn part(address: *const u8, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: address.cast_mut().cast(), iov_len: bytes }
}

impl Remote {
    /// Writes `head` and behind it `count` bytes of the body from `at` on to a socket; gives how many
    /// bytes the socket took. Panics past the end.
    pub fn write_to(&self, socket: BorrowedFd<'_>, head: &[u8], at: usize, count: usize) -> io::Result<usize> {
        assert!(at.checked_add(count).is_some_and(|end| end <= self.len()));
        let mut parts = [part(std::ptr::null(), 0); 1 + FRAGMENTS_MAX];
        parts[0] = part(head.as_ptr(), head.len());
        let mut used = 1;
        let (mut skip, mut left) = (at, count);
        for Fragment { address, bytes } in self.fragments() {
            if skip >= *bytes {
                skip -= bytes;
                continue;
            }
            let here = left.min(bytes - skip);
            parts[used] = part(address.wrapping_add(skip), here);
            (skip, left, used) = (0, left - here, used + 1);
            if left == 0 {
                break;
            }
        }
        // SAFETY: all zeroes is a valid header: no address, no control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), used as _);
        // SAFETY: the first part is a slice; the others lie in fragments that were checked to lie in
        // the mapping, which `self` keeps. The kernel reads them, whatever their bytes are.
        let written = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }
}

impl Block {
    /// Reads from a socket: up to `count` bytes to `at`, and what comes behind them into `behind`.
    /// Gives how many bytes there were. Panics past the end.
    pub fn read_from(&self, socket: BorrowedFd<'_>, at: usize, count: usize, behind: &mut [u8]) -> io::Result<usize> {
        assert!(at.checked_add(count).is_some_and(|end| end <= self.capacity()));
        let parts = [part(self.address().wrapping_add(at), count), part(behind.as_mut_ptr(), behind.len())];
        // SAFETY: the first range was checked to lie in the block, which only this process writes and
        // to which there are no references; the second one is a slice lent for writing.
        let read = unsafe { libc::readv(socket.as_raw_fd(), parts.as_ptr(), 2) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::straight_pair;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_body_goes_through_a_socket_and_back_into_shared_memory() {
        let body: Vec<u8> = (0..20_000_u32).map(|at| (at * 7) as u8).collect();
        let (remote, mut other) = straight_pair(&body, &[5000, 10_000, 5000]);
        let (near, far) = UnixStream::pair().unwrap();
        assert_eq!(remote.write_to(near.as_fd(), b"head", 4000, 12_000).unwrap(), 12_004);
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
        let (_, mut other) = straight_pair(&[1; 1000], &[1000]);
        let block = other.allocate(1000).unwrap();
        let (_near, far) = UnixStream::pair().unwrap();
        let _ = block.read_from(far.as_fd(), block.capacity(), 1, &mut []);
    }
}
