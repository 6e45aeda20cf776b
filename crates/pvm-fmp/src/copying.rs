//! One copy between two processes, made by both of them.
//!
//! The receiver copies from the front of the offered body, the sender from its back, each in
//! chunks that it announces first; they stop where they meet. A chunk that both copy is copied
//! twice with the same bytes, which costs time only. Two cores move twice as much as one: the
//! kernel's copy between processes runs at a third of a core's own speed.
//!
//! How the two agree is in [`crate::meeting`]; here are the copies themselves.
use crate::extents::Mapping;
use crate::meeting::{self, Meeting};
use crate::segment::{Header, PeerLine};
use crate::sync::Ordering;
use std::io::IoSliceMut;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Bodies from this size on are copied by both sides, in bytes.
const SHARED_BYTES_MIN: usize = 32 << 10;
/// Smallest and largest chunk, in bytes.
const CHUNK_BYTES_MIN: usize = 16 << 10;
const CHUNK_BYTES_MAX: usize = 128 << 10;
/// How long the receiver waits for the sender's last chunk before it copies that too.
const HELPER_PATIENCE: Duration = Duration::from_micros(500);

/// Why bytes could not be copied from another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The process is gone, another one than it should be, or its memory is not there.
    Gone,
    /// The system does not allow it.
    Forbidden,
}

/// How long the receiver waits for a chunk to end that the sender is copying into its buffer. A sender
/// that needs longer to copy so little has been stopped, or never meant to end.
const CHUNK_PATIENCE: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(10) };
/// How /proc calls segments.
const SEGMENT_PATH: &str = "/memfd:hpvm";

fn chunk_bytes(bytes: usize) -> usize {
    (bytes / 8).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX).next_multiple_of(4096)
}

/// Copies from the process of `header` into `data`, after a look at its nonce: a process id alone
/// may mean another process (across process namespaces, or after a death).
fn read_from(header: &Header, address: u64, data: &mut [u8]) -> Result<(), Refusal> {
    let pid = header.pid.load(Ordering::Relaxed) as libc::pid_t;
    let nonce_address = header.nonce_address.load(Ordering::Relaxed);
    let mut done = 0;
    while done < data.len() {
        let mut nonce = [0u8; 8];
        let mut into = [IoSliceMut::new(&mut nonce), IoSliceMut::new(&mut data[done..])];
        let from = [remote(nonce_address, 8), remote(address.wrapping_add(done as u64), into[1].len())];
        // SAFETY: `IoSliceMut` has the layout of iovec and covers writable bytes; the remote
        // addresses are the kernel's to check.
        let count = unsafe { libc::process_vm_readv(pid, into.as_mut_ptr().cast(), 2, from.as_ptr(), 2, 0) };
        let count = usize::try_from(count).map_err(|_| refusal())?;
        if count <= 8 || u64::from_ne_bytes(nonce) != header.nonce.load(Ordering::Relaxed) {
            return Err(Refusal::Gone);
        }
        done += count - 8;
    }
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// Bytes that this thread has copied to other processes.
    pub(crate) static WRITTEN_BYTES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Copies `data` to an address of a process.
fn write_to(pid: i32, address: u64, data: &[u8]) -> Result<(), Refusal> {
    #[cfg(test)]
    WRITTEN_BYTES.set(WRITTEN_BYTES.get() + data.len());
    let from = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let into = remote(address, data.len());
    // SAFETY: the local bytes are read only; the remote address is the kernel's to check.
    let count = unsafe { libc::process_vm_writev(pid, &raw const from, 1, &raw const into, 1, 0) };
    if usize::try_from(count) == Ok(data.len()) { Ok(()) } else { Err(refusal()) }
}

fn remote(address: u64, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes }
}

fn refusal() -> Refusal {
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EFAULT | libc::ESRCH) => Refusal::Gone,
        _ => Refusal::Forbidden,
    }
}

/// The process of a segment's owner, if it can be reached from here. The owner itself says which it is,
/// and might name another one, to have us write there; so it is believed only if it has the segment
/// mapped for writing, as nobody else has.
pub fn owner_of(segment: &Mapping) -> Option<i32> {
    let header = segment.header();
    let process = header.pid.load(Ordering::Relaxed) as i32;
    let mut nonce = [0u8; 8];
    read_from(header, header.nonce_address.load(Ordering::Relaxed), &mut nonce).ok()?;
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    maps.lines().any(|line| maps_for_writing(line, segment.inode)).then_some(process)
}

/// Whether a line of /proc/PID/maps (range, rights, offset, device, inode, name) tells of a shared
/// writable mapping of our kind of file with that inode.
fn maps_for_writing(line: &str, inode: u64) -> bool {
    let mut words = line.split_whitespace();
    let (rights, number) = (words.nth(1), words.nth(2));
    rights.is_some_and(|rights| rights.starts_with("rw") && rights.ends_with('s'))
        && number.and_then(|number| number.parse().ok()) == Some(inode)
        && words.next().is_some_and(|name| name.starts_with(SEGMENT_PATH))
}

/// The words by which the two sides agree: `front` and what is open stand in the receiver's line
/// for the sender, the others in the sender's line for the receiver.
fn meeting<'a>(receiver: &'a PeerLine, sender: &'a PeerLine) -> Meeting<'a> {
    Meeting { open: &receiver.into_number, front: &receiver.front, back: &sender.back, back_done: &sender.back_done }
}

/// The sender, before it makes an offer: nothing copied yet.
pub fn begin(ours: &PeerLine) {
    meeting::begin(&ours.back, &ours.back_done);
}

/// The receiver: fills `data` with the first bytes of the offered body. `lives` tells whether the
/// sender does.
pub fn receive(
    sender: &Header,
    theirs: &PeerLine,
    ours: &PeerLine,
    number: u64,
    address: u64,
    data: &mut [u8],
    lives: &dyn Fn() -> bool,
) -> Result<(), Refusal> {
    if data.len() < SHARED_BYTES_MIN {
        return read_from(sender, address, data);
    }
    let (bytes, chunk) = (data.len() as u64, chunk_bytes(data.len()) as u64);
    ours.into_address.store(data.as_mut_ptr() as u64, Ordering::Relaxed);
    ours.into_bytes.store(bytes, Ordering::Relaxed);
    let copy = |range: Range<u64>| {
        read_from(sender, address.wrapping_add(range.start), &mut data[range.start as usize..range.end as usize])
    };
    let mut impatient = impatience();
    let start = Instant::now();
    let works = || lives() && start.elapsed() < CHUNK_PATIENCE;
    meeting(ours, theirs).receive(number, bytes, chunk, copy, &mut impatient, &works)
}

/// Says after a while that the wait for the sender's last chunk has been long enough.
fn impatience() -> impl FnMut() -> bool {
    let (mut start, mut looks) = (None, 0u32);
    move || {
        let start = *start.get_or_insert_with(Instant::now);
        looks += 1;
        std::hint::spin_loop();
        looks % 64 == 0 && start.elapsed() > HELPER_PATIENCE
    }
}

/// The sender: when the receiver has opened its buffer for offer `number`, copies from the back of
/// `body` until the two meet.
pub fn help(receiver: i32, theirs: &PeerLine, ours: &PeerLine, number: u64, body: &[u8]) {
    let meeting = meeting(theirs, ours);
    if !meeting.is_open(number) {
        return;
    }
    let into = theirs.into_address.load(Ordering::Relaxed);
    let bytes = (theirs.into_bytes.load(Ordering::Relaxed) as usize).min(body.len());
    let copy = |range: Range<u64>| {
        write_to(receiver, into.wrapping_add(range.start), &body[range.start as usize..range.end as usize])
    };
    meeting.help(number, bytes as u64, chunk_bytes(bytes) as u64, copy);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_maps_a_segment_for_writing_is_its_owner() {
        let line = "7f00-7f10 rw-s 00000000 00:01 77 /memfd:hpvm (deleted)";
        assert!(maps_for_writing(line, 77) && !maps_for_writing(line, 78));
        assert!(!maps_for_writing("7f00-7f10 r--s 00000000 00:01 77 /memfd:hpvm (deleted)", 77));
        assert!(!maps_for_writing("7f00-7f10 rw-p 00000000 00:01 77 /memfd:hpvm (deleted)", 77));
        assert!(!maps_for_writing("7f00-7f10 rw-s 00000000 00:01 77 /tmp/file", 77));
        assert!(!maps_for_writing("7f00-7f10 rw-s 00000000 00:00 0", 0) && !maps_for_writing("", 0));
    }
}
