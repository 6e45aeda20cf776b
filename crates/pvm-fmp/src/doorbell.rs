//! A doorbell wakes a task that sleeps in `poll(2)`.
//!
//! It is a pipe of one page. Its owner reads from an open file description of its own; peers get another one, open for
//! both directions, so that a ring always finds a reader and raises no SIGPIPE. All processes with a description share
//! its flags, and any of them may change these or fill the pipe: so nothing here relies on them.
use crate::file::{failed, reopen};
use rustix::fs::{FileType, OFlags};
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The smallest size of a pipe; the system makes it a page.
const PIPE_BYTES: usize = 4096;
/// Rings that are read at once. There are few, unless somebody breaks the rules.
const RINGS_BYTES: usize = 256;

/// Makes a doorbell.
pub fn new() -> io::Result<OwnedFd> {
    let (end, other) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    drop(other); // its number may be the last that this process may have
    rustix::pipe::fcntl_setpipe_size(&end, PIPE_BYTES).map_err(|errno| failed("fcntl(F_SETPIPE_SZ)", errno))?;
    again(end.as_fd())
}

/// Opens the same doorbell with flags that other holders of `bell` cannot change.
pub fn again(bell: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match reopen(bell, flags) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(io::Error::new(error.kind(), "no doorbell without /proc, and it is not mounted"))
        }
        other => other,
    }
}

/// Returns whether that is a doorbell. A task could hand out anything: a write would change a file, and to a pipe that
/// has no reader it would kill the writer.
pub fn is_bell(bell: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(bell).is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo)
        && rustix::fs::fcntl_getfl(bell).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
}

/// Rings. Never waits, whatever the flags of `bell` are: a full doorbell has rung already.
pub fn ring(bell: BorrowedFd<'_>) {
    static RING: u8 = 1;
    let ring = libc::iovec { iov_base: (&raw const RING).cast_mut().cast(), iov_len: 1 };
    // A write would have to look at the flags first, and they could change in between. This call is
    // told not to wait.
    // SAFETY: a doorbell is open for writing, so the kernel reads the byte, which lives for ever.
    let rung = unsafe { libc::vmsplice(bell.as_raw_fd(), &raw const ring, 1, libc::SPLICE_F_NONBLOCK) };
    // Sandboxes that do not have or allow the call have an error of their own for that. A file that is no pipe is no
    // doorbell any more: the program has closed the doorbell, and opened something else.
    let errno = io::Error::last_os_error().raw_os_error();
    if rung < 0 && ![Some(libc::EAGAIN), Some(libc::EBADF)].contains(&errno) {
        write(bell);
    }
}

/// Rings where the system has no other call; a process that changes the flags meanwhile makes it wait.
fn write(bell: BorrowedFd<'_>) {
    let Ok(flags) = rustix::fs::fcntl_getfl(bell) else { return };
    if flags.contains(OFlags::NONBLOCK) || rustix::fs::fcntl_setfl(bell, flags | OFlags::NONBLOCK).is_ok() {
        let _ = rustix::io::write(bell, &[1]);
    }
}

/// Empties this task's doorbell, by a description that nobody else has ([`new`], [`again`]). Others may have made the
/// pipe larger and filled it; then it goes on ringing for a while.
pub fn empty(bell: BorrowedFd<'_>) {
    let mut rings = [0u8; RINGS_BYTES];
    for _ in 0..PIPE_BYTES / RINGS_BYTES {
        if rustix::io::read(bell, &mut rings) != Ok(RINGS_BYTES) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(bell: BorrowedFd<'_>) -> bool {
        rustix::io::read(bell, &mut [0u8; PIPE_BYTES]).is_ok()
    }

    #[test]
    fn rings_are_heard_once() {
        let own = new().unwrap();
        let given = again(own.as_fd()).unwrap();
        assert!(is_bell(given.as_fd()) && !rings(own.as_fd()));
        for way in [ring, write] {
            (0..1000).for_each(|_| way(given.as_fd()));
            assert!(rings(own.as_fd()) && !rings(own.as_fd()));
        }
    }

    #[test]
    fn neither_ringer_nor_owner_is_held_up() {
        let own = new().unwrap();
        let given = again(own.as_fd()).unwrap();
        // What a hostile peer can do with it: enlarge it, fill it, have it block.
        rustix::pipe::fcntl_setpipe_size(&given, 1 << 16).unwrap();
        while rustix::io::write(&given, &[7; 1000]).is_ok() {}
        rustix::fs::fcntl_setfl(&given, OFlags::empty()).unwrap();
        ring(given.as_fd());
        for _ in 0..100 {
            empty(own.as_fd());
        }
        assert!(!rings(own.as_fd()));
        ring(given.as_fd());
        assert!(rings(own.as_fd()));
    }

    #[test]
    fn what_is_no_pipe_is_left_alone() {
        // A program that closes descriptors that are not its own may open something in a doorbell's place.
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        ring(one.as_fd());
        assert!(!rustix::fs::fcntl_getfl(&one).unwrap().contains(OFlags::NONBLOCK));
        rustix::io::ioctl_fionbio(&other, true).unwrap();
        assert!(!rings(other.as_fd()));
    }
}
