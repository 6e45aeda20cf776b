//! The descriptors that hpvm opens in the process of a program never get the numbers 0, 1 and 2. A program that was
//! started with some of these numbers closed still writes to them, and would write into hpvm's sockets and memory. This
//! module also finds the process at the other end of a socket.
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// The first number after those of standard input, output and errors.
const FIRST: i32 = 3;

/// Moves a descriptor to a number that no program takes for its own input or output.
pub fn above_standard(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    match descriptor.as_raw_fd() {
        FIRST.. => Ok(descriptor),
        _ => Ok(rustix::io::fcntl_dupfd_cloexec(&descriptor, FIRST)?),
    }
}

/// While this value lives, the numbers 0, 1 and 2 are occupied, and new descriptors get other numbers.
pub struct Floor(#[allow(dead_code)] Vec<OwnedFd>);

impl Floor {
    /// Opens `/dev/null` under each of these numbers that is free. If this fails, the numbers stay free.
    pub fn occupy_standard() -> Floor {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let null = || rustix::fs::open("/dev/null", flags, Mode::empty()).ok();
        Floor(std::iter::from_fn(null).take_while(|opened| opened.as_raw_fd() < FIRST).collect())
    }
}

/// The process at the other end of a socket of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The id of the process that connected or listened; 0 if it is not visible in this process's namespace.
    pub process: i32,
    /// The user id of that process.
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
