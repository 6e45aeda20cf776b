//! Taking messages, and reading them.
use super::{Buffer, Calls, Taken, hpvm_precv, hpvm_take, pvm_bufinfo, pvm_recvinfo, pvm_setrbuf};
use libc::{c_int, c_uint};
use std::ffi::CStr;
use std::time::Duration;

/// The bytes that `hpvm_take` reads of a message that does not fit.
const SIGN_BYTES: usize = 8;

/// A received message: buffer, sender, tag, bytes.
pub type Envelope = (c_int, c_int, c_int, usize);

/// Returns a time limit as the library wants it; `None` is no time.
fn microseconds(limit: Option<Duration>) -> c_int {
    c_int::try_from(limit.unwrap_or_default().as_micros()).unwrap_or(c_int::MAX)
}

/// Takes the next message that matches, if it comes within `limit` (`None`: if it is there). It is not the active
/// buffer afterwards, so the next receive does not free it.
pub fn take(_: &mut Calls, tid: c_int, tag: c_int, limit: Option<Duration>) -> Result<Option<Envelope>, c_int> {
    take_into(tid, tag, limit, &mut [])
}

/// Takes a message in the same way and copies its bytes: all if they fit, otherwise the first eight. The buffer in the
/// result is 0 if all were copied.
pub fn take_and_read(
    calls: &mut Calls,
    tid: c_int,
    tag: c_int,
    limit: Option<Duration>,
) -> Result<Option<(Envelope, &[u8])>, c_int> {
    let found = take_into(tid, tag, limit, &mut calls.0)?;
    Ok(found.map(|found| {
        let read = if found.0 == 0 { found.3 } else { SIGN_BYTES };
        (found, &calls.0[..read])
    }))
}

fn take_into(tid: c_int, tag: c_int, limit: Option<Duration>, into: &mut [u8]) -> Result<Option<Envelope>, c_int> {
    let mut taken = Taken::default();
    let room = into.len() as c_int;
    // SAFETY: memory of `room` bytes, and a place for the result.
    let code = unsafe { hpvm_take(tid, tag, microseconds(limit), into.as_mut_ptr(), room, &mut taken) };
    match code {
        1 => Ok(Some((taken.mid, taken.source, taken.tag, taken.length as c_uint as usize))),
        0 => Ok(None),
        code => Err(code),
    }
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
    let mut found = [0; 3];
    // SAFETY: writable memory for `count` items, which stays in place while `data` lives, and three ints.
    let result = unsafe { hpvm_precv(tid, tag, data.0.data, count, code, microseconds(limit), found.as_mut_ptr()) };
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
