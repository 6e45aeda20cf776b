//! Taking messages, and reading them.
use super::{
    Buffer, Calls, chunks, hpvm_precv, pvm_bufinfo, pvm_freebuf, pvm_nrecv, pvm_recvinfo, pvm_setrbuf, pvm_trecv, pvm_upkbyte,
};
use libc::{c_int, c_uint, timeval};
use std::ffi::CStr;
use std::time::Duration;

/// A received message: buffer, sender, tag, bytes.
pub type Envelope = (c_int, c_int, c_int, usize);

/// Takes the next message that matches, if it comes within `limit` (`None`: if it is there). It is not the active
/// buffer afterwards, so the next receive does not free it.
pub fn take(_: &mut Calls, tid: c_int, tag: c_int, limit: Option<Duration>) -> Result<Option<Envelope>, c_int> {
    // SAFETY: ints, and a time that lives long enough.
    unsafe {
        let before = pvm_setrbuf(0);
        let mid = receive(tid, tag, limit);
        pvm_setrbuf(before.max(0));
        envelope(mid)
    }
}

/// A received message that is the active buffer.
pub struct Open {
    mid: c_int,
    is_kept: bool,
}

impl Open {
    /// Unpacks bytes until the slice is full.
    pub fn read(&self, bytes: &mut [u8]) -> c_int {
        chunks(pvm_upkbyte, bytes.as_mut_ptr().cast(), bytes.len(), 1)
    }

    /// The message stays; whoever has its number frees it.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }
}

/// Takes the next message that matches, as [`take`] does, and reads it by `read`; frees it unless `read` keeps it.
pub fn take_and<T>(
    _: &mut Calls,
    tid: c_int,
    tag: c_int,
    limit: Option<Duration>,
    read: impl FnOnce(&mut Open, Envelope) -> Result<T, c_int>,
) -> Result<Option<T>, c_int> {
    // SAFETY: ints, and a time that lives long enough.
    unsafe {
        let before = pvm_setrbuf(0);
        let mid = receive(tid, tag, limit);
        let found = envelope(mid).and_then(|found| {
            let Some(found) = found else { return Ok(None) };
            let mut open = Open { mid, is_kept: false };
            let result = read(&mut open, found);
            if !open.is_kept {
                pvm_freebuf(open.mid);
            }
            result.map(Some)
        });
        pvm_setrbuf(before.max(0));
        found
    }
}

/// Receives: `pvm_nrecv` without a limit, otherwise `pvm_trecv`. The message is the active buffer.
///
/// # Safety
/// The right to call the library.
unsafe fn receive(tid: c_int, tag: c_int, limit: Option<Duration>) -> c_int {
    let Some(limit) = limit else {
        // SAFETY: ints only.
        return unsafe { pvm_nrecv(tid, tag) };
    };
    let limit = timeval { tv_sec: limit.as_secs() as i64, tv_usec: i64::from(limit.subsec_micros()) };
    // SAFETY: ints, and a time that lives long enough.
    unsafe { pvm_trecv(tid, tag, &limit) }
}

/// A message that was received into memory: its sender, its tag, and its length in bytes.
pub type Received = (c_int, c_int, usize);

/// Receives the next message that matches into `data`, as items of PVM's type `code` and of `size` bytes, if it comes
/// within `limit` (`None`: if it is there). Long messages go straight to their place.
pub fn precv(
    _: &mut Calls,
    tid: c_int,
    tag: c_int,
    limit: Option<Duration>,
    (code, size): (c_int, usize),
    data: &Buffer,
) -> Result<Option<Received>, c_int> {
    let Ok(count) = c_int::try_from(data.len() / size) else { return Err(-2) };
    let limit = c_int::try_from(limit.unwrap_or_default().as_micros()).unwrap_or(c_int::MAX);
    let mut found = [0; 3];
    // SAFETY: writable memory for `count` items, which stays in place while `data` lives, and three ints.
    let result = unsafe { hpvm_precv(tid, tag, data.0.data, count, code, limit, found.as_mut_ptr()) };
    match result {
        1 => Ok(Some((found[0], found[1], found[2] as c_uint as usize))),
        0 => Ok(None),
        code => Err(code),
    }
}

/// Takes an entry of a mailbox.
pub fn take_from_mailbox(_: &mut Calls, name: &CStr, index: c_int, flags: c_int) -> Result<Option<Envelope>, c_int> {
    // SAFETY: a text and ints.
    unsafe {
        let before = pvm_setrbuf(0);
        let mid = pvm_recvinfo(name.as_ptr(), index, flags);
        pvm_setrbuf(before.max(0));
        envelope(mid)
    }
}

/// Returns what is known of a buffer; 0 is no buffer.
///
/// # Safety
/// The right to call the library.
unsafe fn envelope(mid: c_int) -> Result<Option<Envelope>, c_int> {
    if mid <= 0 {
        return if mid < 0 { Err(mid) } else { Ok(None) };
    }
    let (mut bytes, mut tag, mut tid) = (0, 0, 0);
    // SAFETY: places for the results.
    let code = unsafe { pvm_bufinfo(mid, &mut bytes, &mut tag, &mut tid) };
    // A body of 2 GiB or more has a length that an int holds only as a negative number.
    if code < 0 { Err(code) } else { Ok(Some((mid, tid, tag, bytes as c_uint as usize))) }
}
