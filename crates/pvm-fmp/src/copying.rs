//! One copy between two processes, made by both of them.
//!
//! The receiver copies from the front of the offered body, the sender from its back, each in
//! chunks that it announces first; they stop where they meet. A chunk that both copy is copied
//! twice with the same bytes, which costs time only. Two cores move twice as much as one: the
//! kernel's copy between processes runs at a third of a core's own speed.
//!
//! `front` and the place of the receive buffer stand in the receiver's line for the sender,
//! `back` and `back_done` in the sender's line for the receiver.
use crate::segment::{Header, PeerLine};
use crate::sync::{Ordering, fence};
use std::io::IoSliceMut;
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
        let from = [remote(nonce_address, 8), remote(address + done as u64, into[1].len())];
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

/// Copies `data` to an address of the process of `header`, whose nonce was looked at before.
fn write_to(header: &Header, address: u64, data: &[u8]) -> Result<(), Refusal> {
    let pid = header.pid.load(Ordering::Relaxed) as libc::pid_t;
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

/// Whether the process id in `header` means the owner of the segment, seen from here.
pub fn is_reachable(header: &Header) -> bool {
    let mut nonce = [0u8; 8];
    let there = header.nonce_address.load(Ordering::Relaxed);
    read_from(header, there, &mut nonce).is_ok()
}

/// The sender, before it makes an offer: nothing copied yet.
pub fn begin(ours: &PeerLine) {
    ours.back.store(u64::MAX, Ordering::Relaxed);
    ours.back_done.store(u64::MAX, Ordering::Relaxed);
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
    ours.front.store(0, Ordering::Relaxed);
    ours.into_address.store(data.as_mut_ptr() as u64, Ordering::Relaxed);
    ours.into_bytes.store(data.len() as u64, Ordering::Relaxed);
    ours.into_number.store(number, Ordering::Release);
    let result = receive_front(sender, theirs, ours, address, data);
    // The buffer is the caller's again when this returns: close it, and let a chunk that the
    // sender has announced come to its end. Pairs with the fence in `help`.
    ours.into_number.store(0, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    while theirs.back.load(Ordering::Acquire) != theirs.back_done.load(Ordering::Acquire) && lives() {
        std::thread::yield_now();
    }
    result
}

fn receive_front(
    sender: &Header,
    theirs: &PeerLine,
    ours: &PeerLine,
    address: u64,
    data: &mut [u8],
) -> Result<(), Refusal> {
    let (bytes, chunk) = (data.len(), chunk_bytes(data.len()));
    let claimed = || (theirs.back.load(Ordering::Acquire)).min(bytes as u64) as usize;
    let written = || (theirs.back_done.load(Ordering::Acquire)).min(bytes as u64) as usize;
    let mut front = 0;
    while front < claimed() {
        let end = (front + chunk).min(claimed()).max(front);
        ours.front.store(end as u64, Ordering::Release);
        read_from(sender, address + front as u64, &mut data[front..end])?;
        front = end;
    }
    let (start, mut spins) = (Instant::now(), 0u32);
    while written() > front {
        spins += 1;
        if spins % 64 == 0 && start.elapsed() > HELPER_PATIENCE {
            let end = written();
            return read_from(sender, address + front as u64, &mut data[front..end.max(front)]);
        }
        std::hint::spin_loop();
    }
    Ok(())
}

/// The sender: when the receiver has opened its buffer for offer `number`, copies from the back of
/// `body` until the two meet.
pub fn help(receiver: &Header, theirs: &PeerLine, ours: &PeerLine, number: u64, body: &[u8]) {
    let open = || theirs.into_number.load(Ordering::Acquire) == number;
    if !open() {
        return;
    }
    let into = theirs.into_address.load(Ordering::Relaxed);
    let bytes = (theirs.into_bytes.load(Ordering::Relaxed) as usize).min(body.len());
    let chunk = chunk_bytes(bytes);
    let mut back = bytes;
    loop {
        let start = back.saturating_sub(chunk).max(theirs.front.load(Ordering::Acquire) as usize);
        if start >= back {
            return;
        }
        ours.back.store(start as u64, Ordering::Relaxed);
        // Pairs with the fence in `receive`: either we see it closed, or it sees our claim.
        fence(Ordering::SeqCst);
        if !open() || write_to(receiver, into + start as u64, &body[start..back]).is_err() {
            // What was claimed is not there: the receiver copies it when its patience ends.
            ours.back.store(ours.back_done.load(Ordering::Relaxed), Ordering::Release);
            return;
        }
        ours.back_done.store(start as u64, Ordering::Release);
        back = start;
    }
}
