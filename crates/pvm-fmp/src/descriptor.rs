//! The descriptors that hpvm opens in the process of a program never get the numbers 0, 1 and 2. A program that was
//! started with some of these numbers closed still writes to them, and would write into hpvm's sockets and memory. This
//! module also finds the process at the other end of a socket.
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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

/// Separates the descriptor table of the calling thread from that of the process. The thread's table has only 0, 1, 2 and
/// those to `keep`, under the same numbers; returns the thread's copies of the latter. A process that this thread starts has
/// little to inherit, however many descriptors the other threads have. Must be called at the beginning of a thread that
/// uses no other descriptors, and whose signals have no handlers that do. Fails before Linux 5.9.
pub fn separate_thread<const COUNT: usize>(keep: [BorrowedFd<'_>; COUNT]) -> io::Result<[OwnedFd; COUNT]> {
    let mut numbers = keep.map(|descriptor| descriptor.as_raw_fd());
    numbers.sort_unstable();
    let highest = numbers.last().map_or(FIRST - 1, |number| *number);
    close_range(highest + 1, i32::MAX, libc::CLOSE_RANGE_UNSHARE)?;
    let mut first = FIRST;
    for number in numbers {
        if number > first {
            close_range(first, number - 1, 0)?;
        }
        first = first.max(number + 1);
    }
    // SAFETY: the table of this thread has a copy of each under its number, and nobody else owns it.
    Ok(keep.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor.as_raw_fd()) }))
}

fn close_range(first: i32, last: i32, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: with the first call the table becomes that of this thread alone, which has just begun and uses none of
    // these descriptors; the other calls close only descriptors of that table.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
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
    fn a_separate_thread_has_a_table_of_its_own() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (one, other) = (OwnedFd::from(one), OwnedFd::from(other));
        let (low, high) = (other.as_raw_fd().min(one.as_raw_fd()), other.as_raw_fd().max(one.as_raw_fd()));
        let (keep, begun) = (std::sync::Arc::new(other), std::sync::mpsc::channel());
        let theirs = keep.clone();
        let thread = std::thread::spawn(move || {
            let own = separate_thread([theirs.as_fd()]);
            drop(theirs);
            begun.0.send(()).unwrap();
            let [own] = own.ok()?;
            let open: Vec<i32> = std::fs::read_dir("/proc/thread-self/fd")
                .unwrap()
                .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
                .collect();
            rustix::io::write(&own, b"x").unwrap();
            Some((own.as_raw_fd(), open))
        });
        begun.1.recv().unwrap();
        // What the process closes stays open in the thread.
        drop(keep);
        // Before Linux 5.9 nothing is separate.
        let Some((own, open)) = thread.join().unwrap() else { return };
        // One more is that with which the list was read.
        assert!(
            own >= low && own <= high && open.iter().filter(|number| **number >= FIRST).count() == 2,
            "{own} {open:?}"
        );
        let mut byte = [0];
        assert_eq!((rustix::io::read(&one, &mut byte), byte), (Ok(1), *b"x"));
        assert_eq!(rustix::io::read(&one, &mut byte), Ok(0), "the thread's end is closed with the thread");
    }

    #[test]
    fn the_other_end_is_known() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = Peer { process: std::process::id() as i32, user: rustix::process::geteuid().as_raw() };
        assert_eq!(peer_of(one.as_fd()).unwrap(), own);
        assert!(peer_of(std::fs::File::open("/dev/null").unwrap().as_fd()).is_err());
    }
}
