//! A doorbell wakes a task that sleeps in `poll(2)`.
//!
//! It is a pipe of one page. Its owner reads from an open file description that no other process has. Peers get another
//! description, open for reading and writing: so the pipe always has a reader, and a ring raises no SIGPIPE. All
//! processes that share a description share its flags, and any of them may change the flags or fill the pipe, so
//! nothing here relies on the flags, nor on room in the pipe.
use crate::file::{failed, reopen};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, OFlags};
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The smallest size of a pipe, in bytes; the system rounds it up to a page.
const PIPE_BYTES: usize = 4096;
/// The number of rings (one byte each) that one read takes. Unless a peer breaks the rules, the pipe holds only a few
/// rings.
const RINGS_BYTES: usize = 256;

/// Makes a doorbell.
pub fn new() -> io::Result<OwnedFd> {
    let (end, other) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    drop(other); // frees its number: the limit of the process may allow no further one
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

/// Returns whether the descriptor is a doorbell. A task could pass any other descriptor: a write to a file would change
/// the file, and a write to a pipe without a reader would kill the writer.
pub fn is_bell(bell: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(bell).is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo)
        && rustix::fs::fcntl_getfl(bell).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
}

/// Rings. Never waits, whatever the flags of `bell` are: if the pipe is full, the doorbell has rung already.
pub fn ring(bell: BorrowedFd<'_>) {
    static RING: u8 = 1;
    let ring = libc::iovec { iov_base: (&raw const RING).cast_mut().cast(), iov_len: 1 };
    // `write` would have to check the flags first, and they could change before the write. `vmsplice` instead takes a
    // flag that forbids this one call to wait.
    // SAFETY: a doorbell is open for writing, so the kernel reads the byte, which lives for ever.
    let rung = unsafe { libc::vmsplice(bell.as_raw_fd(), &raw const ring, 1, libc::SPLICE_F_NONBLOCK) };
    // Where the system lacks `vmsplice` or a sandbox forbids it, the error is neither EAGAIN nor EBADF. EBADF means
    // that the descriptor is no pipe: the program has closed the doorbell and opened another file under its number.
    let errno = io::Error::last_os_error().raw_os_error();
    if rung < 0 && ![Some(libc::EAGAIN), Some(libc::EBADF)].contains(&errno) {
        write(bell);
    }
}

/// Returns whether the doorbell has rung, and its owner has not emptied it. Any holder of the doorbell may ask.
pub fn has_rung(bell: BorrowedFd<'_>) -> bool {
    let mut list = [PollFd::from_borrowed_fd(bell, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // What cannot be asked may have rung.
    rustix::event::poll(&mut list, Some(&at_once)) != Ok(0)
}

/// Rings by `write`, on systems without `vmsplice`. A process that changes the flags meanwhile can make this call wait.
fn write(bell: BorrowedFd<'_>) {
    let Ok(flags) = rustix::fs::fcntl_getfl(bell) else { return };
    if flags.contains(OFlags::NONBLOCK) || rustix::fs::fcntl_setfl(bell, flags | OFlags::NONBLOCK).is_ok() {
        let _ = rustix::io::write(bell, &[1]);
    }
}

/// Empties this task's doorbell, through the description that only this task has ([`new`], [`again`]). If a peer has
/// enlarged the pipe and filled it, the doorbell stays readable, and later calls go on emptying it.
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
            assert!(!has_rung(given.as_fd()));
            (0..1000).for_each(|_| way(given.as_fd()));
            assert!(has_rung(given.as_fd()) && has_rung(own.as_fd()));
            assert!(rings(own.as_fd()) && !rings(own.as_fd()));
        }
    }

    #[test]
    fn neither_ringer_nor_owner_is_held_up() {
        let own = new().unwrap();
        let given = again(own.as_fd()).unwrap();
        // What a hostile peer can do with the pipe: enlarge it, fill it, make it blocking.
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
        // A program may close our descriptors, and then open another file under the number of a doorbell.
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        ring(one.as_fd());
        assert!(!rustix::fs::fcntl_getfl(&one).unwrap().contains(OFlags::NONBLOCK));
        rustix::io::ioctl_fionbio(&other, true).unwrap();
        assert!(!rings(other.as_fd()));
    }
}
