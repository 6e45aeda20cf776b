//! The descriptors that hpvm opens in the process of a program.
//!
//! * They never get the numbers 0, 1 and 2. A program that was started with some of these numbers closed still writes to
//!   them, and would write into hpvm's sockets and memory.
//! * A program may close them, as daemons close all that they have inherited, and then open a file of its own under the same
//!   number. So a descriptor that stays open from call to call is an [`OwnDescriptor`], which knows its file again.
//!
//! This crate also finds the process at the other end of a socket.
use rustix::fs::{FileType, Mode, OFlags};
use std::ffi::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first number after those of standard input, output and errors.
const FIRST: i32 = 3;

/// Moves a descriptor to a number that no program takes for its own input or output.
pub fn above_standard(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    match descriptor.as_raw_fd() {
        FIRST.. => Ok(descriptor),
        _ => Ok(rustix::io::fcntl_dupfd_cloexec(&descriptor, FIRST)?),
    }
}

/// Whether this process has no program that could close the descriptors.
static IS_TRUSTED: AtomicBool = AtomicBool::new(false);

/// Notes that nobody but hpvm closes descriptors of this process, so that they need not be checked.
pub fn trust_process() {
    IS_TRUSTED.store(true, Ordering::Relaxed);
}

/// The number of no descriptor: the system's limit (`fs.nr_open`) is far lower.
// SAFETY: it is the number of no descriptor, so no call with it does anything.
const NONE: BorrowedFd<'static> = unsafe { BorrowedFd::borrow_raw(i32::MAX) };

/// The marks of hpvm's open files: the signal that the system would send if the file were ready, which is never asked for.
/// Other files have the mark 0, unless a program has chosen this very signal for one. To read it is the cheapest way to
/// know an open file again: half the time of `fstat`, which cannot tell descriptors for events (`epoll`) apart.
///
/// The mark is part of the open file. Other processes share that file: peers, and children of a fork. So the mark depends
/// only on the kind of the file, and all processes set the same one. Two files of hpvm with the same mark are not told
/// apart: if the program closes a socket of hpvm, a new socket of hpvm may get its number and pass for it.
const SOCKET: c_int = 60;
const PIPE: c_int = 61;
const MEMORY: c_int = 62;
const OTHER: c_int = 63;
/// The commands of `fcntl` for it (`linux/fcntl.h`).
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

/// A descriptor of hpvm in the process of a program. If the program has closed it, all calls with it fail with `EBADF`, and
/// a file that the program has opened under the same number is neither used nor closed.
#[derive(Debug)]
pub struct OwnDescriptor {
    descriptor: ManuallyDrop<OwnedFd>,
    /// `None` if the file could not be marked, or nobody else closes descriptors: then it is not checked.
    mark: Option<c_int>,
}

impl OwnDescriptor {
    /// Returns whether the number still means the file for which it was opened. This takes a system call.
    pub fn is_open(&self) -> bool {
        self.mark.is_none_or(|mark| mark_of(&self.descriptor) == mark)
    }

    /// Returns the descriptor, which may be the program's: for `poll`, whose caller checks what was ready, or right after
    /// [`OwnDescriptor::is_open`].
    pub fn unchecked(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Returns a descriptor for the same file.
    pub fn try_clone(&self) -> io::Result<OwnDescriptor> {
        self.as_fd().try_clone_to_owned().map(OwnDescriptor::from)
    }

    /// Returns the bare descriptor, or `None` if the program has closed it.
    pub fn into_owned(mut self) -> Option<OwnedFd> {
        let is_open = self.is_open();
        // SAFETY: `self` is forgotten at once.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.descriptor) };
        std::mem::forget(self);
        if is_open {
            return Some(descriptor);
        }
        std::mem::forget(descriptor);
        None
    }
}

fn mark_of(descriptor: &OwnedFd) -> c_int {
    // SAFETY: reads a number.
    unsafe { libc::fcntl(descriptor.as_raw_fd(), F_GETSIG) }
}

impl From<OwnedFd> for OwnDescriptor {
    fn from(descriptor: OwnedFd) -> OwnDescriptor {
        if IS_TRUSTED.load(Ordering::Relaxed) {
            return OwnDescriptor { descriptor: ManuallyDrop::new(descriptor), mark: None };
        }
        let kind = rustix::fs::fstat(&descriptor).map(|status| FileType::from_raw_mode(status.st_mode));
        let mark = match kind {
            Ok(FileType::Socket) => SOCKET,
            Ok(FileType::Fifo) => PIPE,
            Ok(FileType::RegularFile) => MEMORY,
            _ => OTHER,
        };
        // SAFETY: sets a number of the open file, which has no effect as long as nobody asks for signals.
        unsafe { libc::fcntl(descriptor.as_raw_fd(), F_SETSIG, mark) };
        // Some sandboxes take no mark.
        let mark = Some(mark).filter(|mark| mark_of(&descriptor) == *mark);
        OwnDescriptor { descriptor: ManuallyDrop::new(descriptor), mark }
    }
}

impl AsFd for OwnDescriptor {
    /// Returns the descriptor, or one with which every call fails if the program has closed it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        if self.is_open() { self.descriptor.as_fd() } else { NONE }
    }
}

impl Drop for OwnDescriptor {
    fn drop(&mut self) {
        if self.is_open() {
            // SAFETY: it is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.descriptor) };
        }
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

    /// Puts another file under the number of a descriptor, as a program does that closes it and opens a file.
    fn replaced(descriptor: &OwnDescriptor, file: &std::fs::File) -> BorrowedFd<'static> {
        let number = descriptor.descriptor.as_raw_fd();
        // SAFETY: `dup2` closes a descriptor that only `descriptor` uses, which finds out. The new one is never closed.
        unsafe {
            assert_eq!(libc::dup2(file.as_raw_fd(), number), number);
            BorrowedFd::borrow_raw(number)
        }
    }

    #[test]
    fn a_file_of_the_program_under_the_same_number_is_neither_used_nor_closed() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let own = OwnDescriptor::from(OwnedFd::from(one));
        assert!(own.is_open() && rustix::io::write(&own, b"x") == Ok(1));
        let copy = own.try_clone().unwrap();
        let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
        let theirs = replaced(&own, &null);
        assert!(!own.is_open() && own.try_clone().is_err());
        assert_eq!(rustix::io::write(&own, b"x"), Err(rustix::io::Errno::BADF));
        drop(own);
        assert_eq!(rustix::io::write(theirs, b"x"), Ok(1), "it is still open");
        // The copy is the library's own.
        assert!(copy.is_open() && copy.into_owned().is_some());
        assert_eq!(rustix::io::read(&other, &mut [0; 9]), Ok(1));
        assert_eq!(rustix::io::read(&other, &mut [0; 9]), Ok(0));
    }

    #[test]
    fn descriptors_for_events_are_told_apart() {
        let epoll = || {
            // SAFETY: has no preconditions; the descriptor has no other owner.
            unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }
        };
        let own = OwnDescriptor::from(epoll());
        assert!(own.is_open());
        let theirs = replaced(&own, &epoll().into());
        assert!(!own.is_open());
        drop(own);
        assert!(rustix::fs::fstat(theirs).is_ok());
    }

    #[test]
    fn what_was_closed_is_not_given_away() {
        let own = OwnDescriptor::from(OwnedFd::from(std::fs::File::open("/proc/self/stat").unwrap()));
        let null = std::fs::File::open("/dev/null").unwrap();
        let theirs = replaced(&own, &null);
        assert!(own.into_owned().is_none() && rustix::fs::fstat(theirs).is_ok());
    }

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
