//! Processes of peers: whether they live, signals to them, and copies between their memory and ours.
use crate::copy::count_copy;
use crate::extents::Mapping;
use crate::segment_layout::Header;
use crate::sync::ReadOnlyLoad;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The name of segments in /proc.
const SEGMENT_PATH: &str = "/memfd:hpvm";

/// Whom a signal is sent to.
#[derive(Debug, Clone, Copy)]
pub enum Addressee<'a> {
    /// The process with this number.
    Process(Pid),
    /// All processes of a group.
    Group(Pid),
    /// The process of this pidfd, and no other one that has its number by now.
    Pidfd(BorrowedFd<'a>),
}

/// Sends a signal, a real-time signal too. Errors are ignored: who has ended needs no signal, and a signal that does not
/// exist reaches nobody.
pub fn send_signal(to: Addressee<'_>, signal: i32) {
    // SAFETY: these calls read no memory of this process; the descriptor is open while it is borrowed.
    unsafe {
        match to {
            Addressee::Process(process) => _ = libc::kill(process.as_raw_nonzero().get(), signal),
            Addressee::Group(group) => _ = libc::kill(-group.as_raw_nonzero().get(), signal),
            Addressee::Pidfd(pidfd) => {
                let no_information = std::ptr::null::<libc::siginfo_t>();
                libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_information, 0);
            }
        }
    }
}

/// How a child has ended, and what it has used.
#[derive(Debug, Clone, Copy)]
pub struct ChildEnd {
    /// The status, as the system encodes it.
    pub status: i32,
    /// The time in the program.
    pub user: Duration,
    /// The time in the system.
    pub system: Duration,
    /// The most memory that it had.
    pub memory_max_bytes: u64,
}

/// Returns how a child has ended; `None` if it has not. This can be asked once.
pub fn end_of_child(process: Pid) -> io::Result<Option<ChildEnd>> {
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    let number = process.as_raw_nonzero().get();
    // SAFETY: there is room for both answers; zeroes are a usage.
    let (result, usage) = unsafe {
        let result = libc::wait4(number, &raw mut status, libc::WNOHANG, usage.as_mut_ptr());
        (result, usage.assume_init())
    };
    // The system tells no negative numbers.
    let time = |time: libc::timeval| {
        let (seconds, micros) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
        Duration::from_secs(seconds.unwrap_or(0)) + Duration::from_micros(micros.unwrap_or(0))
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some(ChildEnd {
            status,
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            // The system counts in KiB.
            memory_max_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) << 10,
        })),
    }
}

/// Why bytes could not be copied from or to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The process has ended, another process has its id, or the memory does not exist.
    Gone,
    /// The system does not allow it.
    Forbidden,
}

impl Refusal {
    fn of(errno: Errno) -> Refusal {
        if [Errno::FAULT, Errno::SRCH].contains(&errno) { Refusal::Gone } else { Refusal::Forbidden }
    }
}

/// Copies `bytes` bytes from the process that `header` names to `into`, after a check that this process has the
/// header's nonce: the process id alone may mean another process, if the owner has ended or lives in another PID
/// namespace.
///
/// # Safety
/// `bytes` bytes can be written at `into`, whose memory may be uninitialised, and no reference to them is used.
pub unsafe fn read_from(header: &Header, address: u64, into: *mut u8, bytes: usize) -> Result<(), Refusal> {
    let mut done = 0;
    while done < bytes {
        // SAFETY: the rest of what the caller promises.
        match unsafe { read_with_nonce(header, address.wrapping_add(done as u64), into.add(done), bytes - done) } {
            Ok(Some(count)) if count > 0 => done += count,
            Ok(_) => return Err(Refusal::Gone),
            Err(errno) => return Err(Refusal::of(errno)),
        }
    }
    Ok(())
}

/// Copies the nonce and then the bytes, with one system call. Returns how many bytes were copied, or `None` if the
/// nonce is wrong.
///
/// # Safety
/// As [`read_from`].
unsafe fn read_with_nonce(header: &Header, address: u64, into: *mut u8, bytes: usize) -> Result<Option<usize>, Errno> {
    let process = header.pid.load_relaxed() as libc::pid_t;
    let mut nonce = [0u8; 8];
    let from = [remote(header.nonce_address.load_relaxed(), 8), remote(address, bytes)];
    let into = [
        libc::iovec { iov_base: nonce.as_mut_ptr().cast(), iov_len: 8 },
        libc::iovec { iov_base: into.cast(), iov_len: bytes },
    ];
    // SAFETY: both local ranges can be written, the second one as the caller promises; the remote addresses are the
    // kernel's to check.
    let count = unsafe { libc::process_vm_readv(process, into.as_ptr(), 2, from.as_ptr(), 2, 0) };
    let count = usize::try_from(count).map_err(|_| last_errno())?;
    count_copy(count);
    let is_owner = count >= 8 && u64::from_ne_bytes(nonce) == header.nonce.load_relaxed();
    Ok(is_owner.then(|| count - 8))
}

/// Returns whether the process of `header` has the nonce. If not, another process has its id.
fn has_nonce(header: &Header) -> Result<bool, Errno> {
    let mut nonce = [0u8; 8];
    // SAFETY: the array has eight bytes.
    let read = unsafe { read_with_nonce(header, header.nonce_address.load_relaxed(), nonce.as_mut_ptr(), 8) };
    read.map(|count| count.is_some())
}

#[cfg(test)]
thread_local! {
    /// Bytes that this thread has copied to other processes.
    pub(crate) static WRITTEN_BYTES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// A function that runs once, before the next copy to another process.
    pub(crate) static BEFORE_WRITE: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) };
}

/// Copies `data` to an address of a process.
pub fn write_to(process: i32, address: u64, data: &[u8]) -> Result<(), Refusal> {
    #[cfg(test)]
    {
        WRITTEN_BYTES.set(WRITTEN_BYTES.get() + data.len());
        BEFORE_WRITE.take().into_iter().for_each(|held| held());
    }
    let from = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let into = remote(address, data.len());
    // SAFETY: the local bytes are read only; the remote address is the kernel's to check.
    let count = unsafe { libc::process_vm_writev(process, &raw const from, 1, &raw const into, 1, 0) };
    match usize::try_from(count) {
        Ok(count) if count == data.len() => {
            count_copy(count);
            Ok(())
        }
        Ok(_) => Err(Refusal::Gone),
        Err(_) => Err(Refusal::of(last_errno())),
    }
}

fn remote(address: u64, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Returns the process id of a segment's owner, if we can copy to that process. The owner itself writes this id into
/// the segment, and might write the id of another process, to make us write to that process. So the id is trusted only
/// if the process has mapped the segment for writing, which only the owner can have done.
pub fn owner_of(segment: &Mapping) -> Option<i32> {
    let header = segment.header();
    let process = header.pid.load_relaxed() as i32;
    if has_nonce(header) != Ok(true) {
        return None;
    }
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    maps.lines().any(|line| maps_for_writing(line, segment.inode)).then_some(process)
}

/// Returns whether a line of /proc/PID/maps (range, rights, offset, device, inode, name) is a shared writable mapping
/// of a segment with that inode.
fn maps_for_writing(line: &str, inode: u64) -> bool {
    let mut words = line.split_whitespace();
    let (rights, number) = (words.nth(1), words.nth(2));
    rights.is_some_and(|rights| rights.starts_with("rw") && rights.ends_with('s'))
        && number.and_then(|number| number.parse().ok()) == Some(inode)
        && words.next().is_some_and(|name| name.starts_with(SEGMENT_PATH))
}

/// Watches for the end of the process that owns a segment.
pub struct Watch<'a> {
    header: &'a Header,
    process: i32,
    /// A descriptor of the process, or the reason why there is none.
    descriptor: Result<OwnedFd, Errno>,
}

impl<'a> Watch<'a> {
    /// Begins to watch the process that the header names.
    pub fn new(header: &'a Header) -> Watch<'a> {
        let process = header.pid.load_relaxed() as i32;
        let descriptor = match (process > 0).then(|| Pid::from_raw(process)).flatten() {
            Some(pid) => pidfd_open(pid, PidfdFlags::empty()),
            None => Err(Errno::SRCH),
        };
        Watch { header, process, descriptor }
    }

    /// Returns whether the process has ended, or runs another program: in both cases it can no longer write to our
    /// memory. Waits at most `limit` for that. `is_enrolled` returns whether the daemon still knows the task; it is
    /// asked only if the system gives no answer.
    pub fn has_ended(&self, limit: Duration, is_enrolled: &dyn Fn() -> bool) -> bool {
        let has_ended = match &self.descriptor {
            Ok(descriptor) => is_readable(descriptor, limit),
            Err(_) => {
                std::thread::sleep(limit);
                // 0 and negative numbers mean groups of processes.
                // SAFETY: signal 0 is not sent; the call only checks whether the process exists.
                self.process > 0 && unsafe { libc::kill(self.process, 0) != 0 } && last_errno() == Errno::SRCH
            }
        };
        // The process id may belong to another process by now, or the process may run another program.
        has_ended
            || match has_nonce(self.header) {
                Ok(has_nonce) => !has_nonce,
                Err(Errno::FAULT) => true,
                // The first thread of the process has ended; the descriptor becomes readable when all its threads have
                // ended.
                Err(Errno::SRCH) if self.descriptor.is_ok() => false,
                Err(_) => !is_enrolled(),
            }
    }
}

fn is_readable(descriptor: &OwnedFd, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ };
    let mut watched = [PollFd::new(descriptor, PollFlags::IN)];
    poll(&mut watched, Some(&limit)).is_ok_and(|ready| ready > 0)
}

/// Starts a process that only sleeps, and names it in the header as the owner, with its first mapped bytes as the
/// nonce.
#[cfg(test)]
pub(crate) fn sleeping_owner(header: &Header) -> std::process::Child {
    use crate::sync::Ordering;
    let child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    header.pid.store(child.id(), Ordering::Relaxed);
    // Until the child has become `sleep`, its memory is that of this program.
    let start = loop {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let sleep = maps.lines().find(|line| line.contains("sleep") || line.contains("coreutils"));
        if let Some(line) = sleep {
            break u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        }
        std::thread::yield_now();
    };
    header.nonce_address.store(start, Ordering::Relaxed);
    let mut nonce = [0; 8];
    let (from, into) = (remote(start, 8), libc::iovec { iov_base: nonce.as_mut_ptr().cast(), iov_len: 8 });
    // SAFETY: the local bytes are writable; the remote address is the kernel's to check.
    let count = unsafe { libc::process_vm_readv(child.id() as i32, &raw const into, 1, &raw const from, 1, 0) };
    assert_eq!(count, 8);
    header.nonce.store(u64::from_ne_bytes(nonce), Ordering::Relaxed);
    child
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;
    use crate::sync::Ordering;

    #[test]
    fn only_who_maps_a_segment_for_writing_is_its_owner() {
        let line = "7f00-7f10 rw-s 00000000 00:01 77 /memfd:hpvm (deleted)";
        assert!(maps_for_writing(line, 77) && !maps_for_writing(line, 78));
        assert!(!maps_for_writing("7f00-7f10 r--s 00000000 00:01 77 /memfd:hpvm (deleted)", 77));
        assert!(!maps_for_writing("7f00-7f10 rw-p 00000000 00:01 77 /memfd:hpvm (deleted)", 77));
        assert!(!maps_for_writing("7f00-7f10 rw-s 00000000 00:01 77 /tmp/file", 77));
        assert!(!maps_for_writing("7f00-7f10 rw-s 00000000 00:00 0", 0) && !maps_for_writing("", 0));
    }

    #[test]
    fn a_process_has_ended_when_it_is_killed_or_is_another_and_not_before() {
        let segment = Segment::new().unwrap();
        let header = segment.mapping.header();
        let mut child = sleeping_owner(header);
        let own = header.nonce.load(Ordering::Relaxed);
        let without_descriptor = Watch { header, process: child.id() as i32, descriptor: Err(Errno::NOSYS) };
        for watch in [&Watch::new(header), &without_descriptor] {
            assert!(!watch.has_ended(Duration::ZERO, &|| true) && !watch.has_ended(Duration::ZERO, &|| false));
            header.nonce.store(!own, Ordering::Relaxed);
            assert!(watch.has_ended(Duration::ZERO, &|| true), "another process, or another program");
            header.nonce.store(own, Ordering::Relaxed);
        }
        let watch = Watch::new(header);
        child.kill().unwrap();
        // Nobody has waited for the child yet: a zombie keeps its process id.
        while !watch.has_ended(Duration::from_millis(10), &|| true) {}
        assert!(without_descriptor.has_ended(Duration::ZERO, &|| false));
        child.wait().unwrap();
        assert!(Watch::new(header).has_ended(Duration::ZERO, &|| true));
        assert!(without_descriptor.has_ended(Duration::ZERO, &|| true));
        // No process has this number, so only the daemon knows whether the task lives.
        header.pid.store(u32::MAX, Ordering::Relaxed);
        let watch = Watch::new(header);
        assert!(watch.has_ended(Duration::ZERO, &|| false) && !watch.has_ended(Duration::ZERO, &|| true));
    }
}
