//! Cross-memory copies: one copy between two processes, made by both of them.
//!
//! The receiver copies from the front of the body, the sender from its back. Each side claims a chunk before it copies
//! it, and both stop where they meet. If both copy the same chunk, they write the same bytes, which costs only time.
//! The kernel's copy between processes runs at a third of the speed of a copy within a process. Two cores together copy
//! twice as fast as one, which makes up for a part of this loss.
//!
//! [`crate::two_sided_copy`] is the protocol between the two sides; this module makes the copies.
use crate::process::{Refusal, Watch, read_from, write_to};
use crate::segment_layout::{Header, PeerRecord};
use crate::signals::HandlersWait;
use crate::sync::{Ordering, ReadOnlyLoad};
use crate::two_sided_copy::{self, TwoSidedCopy};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The shortest body that both sides copy, in bytes.
const SHARED_BYTES_MIN: usize = 32 << 10;
/// Smallest and largest chunk, in bytes.
const CHUNK_BYTES_MIN: usize = 16 << 10;
const CHUNK_BYTES_MAX: usize = 128 << 10;
/// How long the receiver waits for the sender's last chunk before it copies that chunk, too.
const HELPER_WAIT_MAX: Duration = Duration::from_micros(500);
/// How long the receiver polls for the end of a chunk that the sender has claimed, before it asks the system whether
/// the sender lives.
const CHUNK_WAIT_MAX: Duration = Duration::from_millis(2);
/// The longest time between two checks whether the sender lives.
const QUESTION_PAUSE_MAX: Duration = Duration::from_millis(10);

fn chunk_bytes(bytes: usize) -> usize {
    (bytes / 8).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX).next_multiple_of(4096)
}

/// Returns the words through which the two sides divide the copy: `front` and `open` are in the receiver's record for
/// the sender, the others in the sender's record for the receiver.
fn two_sided_copy<'a>(receiver: &'a PeerRecord, sender: &'a PeerRecord) -> TwoSidedCopy<'a> {
    TwoSidedCopy {
        open: &receiver.into_number,
        front: &receiver.front,
        back: &sender.back,
        back_done: &sender.back_done,
    }
}

/// Notes that nothing is copied yet; for the sender, before it opens a rendezvous.
pub fn begin(ours: &PeerRecord) {
    two_sided_copy::begin(&ours.back, &ours.back_done);
}

/// Copies the first `bytes` bytes of the body to `into`; for the receiver. After this function has returned, the sender
/// writes no more to `into`: it has copied every chunk that it had claimed, or its process has ended. If the sender's
/// process is stopped while it copies a chunk, the receiver has to wait, as for any message that its sender has not
/// finished. `is_enrolled` returns whether the daemon still knows the sender.
///
/// # Safety
/// The range `into` (address, length) can be written; it may be uninitialised. No reference to it is used meanwhile,
/// because the sender's process writes there, too.
pub unsafe fn receive(
    sender: &Header,
    theirs: &PeerRecord,
    ours: &PeerRecord,
    number: u64,
    address: u64,
    (into, bytes): (*mut u8, usize),
    is_enrolled: &dyn Fn() -> bool,
) -> Result<(), Refusal> {
    if bytes < SHARED_BYTES_MIN {
        // SAFETY: as the caller promises.
        return unsafe { read_from(sender, address, into, bytes) };
    }
    // Signal handlers wait until the end: if one left this function by a jump, the buffer would stay open.
    let handlers_wait = HandlersWait::new();
    ours.into_address.store(into as u64, Ordering::Relaxed);
    ours.into_bytes.store(bytes as u64, Ordering::Relaxed);
    let copy = |range: Range<u64>| {
        let (start, count) = (range.start as usize, (range.end - range.start) as usize);
        // SAFETY: a part of what the caller promises.
        unsafe { read_from(sender, address.wrapping_add(range.start), into.add(start), count) }
    };
    let mut timed_out = chunk_timeout();
    let mut has_ended = end_of(sender, &handlers_wait, is_enrolled);
    let chunk = chunk_bytes(bytes) as u64;
    two_sided_copy(ours, theirs).receive(number, bytes as u64, chunk, copy, &mut timed_out, &mut has_ended)
}

/// Makes a function that returns whether the sender has ended. In the first 2 ms that function returns false at once;
/// later each call waits some milliseconds for the sender's end.
fn end_of<'a>(
    sender: &'a Header,
    handlers_wait: &'a HandlersWait,
    is_enrolled: &'a dyn Fn() -> bool,
) -> impl FnMut() -> bool + 'a {
    let (mut start, mut watch, mut pause) = (None, None, Duration::from_millis(1));
    move || {
        if watch.is_none() {
            if start.get_or_insert_with(Instant::now).elapsed() < CHUNK_WAIT_MAX {
                return false;
            }
            handlers_wait.admit_default_actions();
        }
        pause = (pause * 2).min(QUESTION_PAUSE_MAX);
        watch.get_or_insert_with(|| Watch::new(sender)).has_ended(pause, is_enrolled)
    }
}

/// Makes a function that returns whether the receiver has waited long enough for the sender's last chunk.
fn chunk_timeout() -> impl FnMut() -> bool {
    let (mut start, mut looks) = (None, 0u32);
    move || {
        let start = *start.get_or_insert_with(Instant::now);
        looks += 1;
        std::hint::spin_loop();
        looks % 64 == 0 && start.elapsed() > HELPER_WAIT_MAX
    }
}

/// Copies from the back of `body` until the two sides meet, if the receiver has opened its buffer for rendezvous
/// `number`; for the sender.
pub fn help(receiver: i32, theirs: &PeerRecord, ours: &PeerRecord, number: u64, body: &[u8]) {
    let two_sided_copy = two_sided_copy(theirs, ours);
    if !two_sided_copy.is_open(number) {
        return;
    }
    let bytes = (theirs.into_bytes.load_relaxed() as usize).min(body.len());
    if theirs.front.load_relaxed() >= bytes as u64 {
        return;
    }
    // Signal handlers wait until the end: if one left this function by a jump, a chunk would stay claimed, and the
    // receiver would wait for it.
    let _handlers_wait = HandlersWait::new();
    let into = theirs.into_address.load_relaxed();
    let copy = |range: Range<u64>| {
        write_to(receiver, into.wrapping_add(range.start), &body[range.start as usize..range.end as usize])
    };
    two_sided_copy.help(number, bytes as u64, chunk_bytes(bytes) as u64, copy);
}
