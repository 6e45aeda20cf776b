//! Descriptors of ours in the process of a program: never 0, 1 or 2. One that was started with some of these closed
//! goes on writing to them, and would write into our sockets and memory. And who is at the other end of one.
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// The first number behind those of standard input, output and errors.
const FIRST: i32 = 3;

/// Moves a descriptor to a number that no program takes for its own input or output.
pub fn above_standard(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    match descriptor.as_raw_fd() {
        FIRST.. => Ok(descriptor),
        _ => Ok(rustix::io::fcntl_dupfd_cloexec(&descriptor, FIRST)?),
    }
}

/// While this lives the numbers 0, 1 and 2 are taken, and new descriptors have others.
pub struct Floor(#[allow(dead_code)] Vec<OwnedFd>);

impl Floor {
    /// Takes those numbers that are closed. Without `/dev/null`, or without room, it takes none.
    pub fn lay() -> Floor {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let null = || rustix::fs::open("/dev/null", flags, Mode::empty()).ok();
        Floor(std::iter::from_fn(null).take_while(|opened| opened.as_raw_fd() < FIRST).collect())
    }
}

/// The process at the other end of a socket of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The process that connected or listened; 0 for one that cannot be seen from this one's namespace.
    pub process: i32,
    /// Its user.
    pub user: u32,
}

/// Returns the process at the other end.
pub fn peer_of(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut told = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let place = (&raw mut told).cast::<libc::c_void>();
    // SAFETY: the descriptor is open while it is borrowed; `place` points to as many bytes as `length` says.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut length) };
    match result {
        0 => Ok(Peer { process: told.pid, user: told.uid }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_other_end_is_known() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = Peer { process: std::process::id() as i32, user: rustix::process::geteuid().as_raw() };
        assert_eq!(peer_of(one.as_fd()).unwrap(), own);
        assert!(peer_of(std::fs::File::open("/dev/null").unwrap().as_fd()).is_err());
    }
}
