//! Calls for the Python package. Each does what several calls of PVM do: after `pvm_getfds` each call of the library costs
//! two system calls, and otherwise a message of a few bytes costs less than the calls around it.
use crate::errors::{Failure, call_silent};
use crate::fast_path;
use crate::memory::writable;
use crate::process::Guard;
use crate::receive::{Places, Room, precv, receive};
use crate::send::bytes_of;
use pvm_core::codes::Code;
use pvm_task::Kind;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

/// The bytes that are read of a message that does not fit.
const SIGN_BYTES: usize = 8;

/// Does what `pvm_precv` does, for at most `limit_us` microseconds, for the Python package: an interpreter that waits
/// must look for signals. Stores the sender, the tag and the length in bytes. Returns 1, 0 if no message has come, or
/// an error code. It is not traced.
///
/// # Safety
/// `data` has room for `count` items, and the three places are valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_precv(
    tid: c_int,
    tag: c_int,
    data: *mut c_void,
    count: c_int,
    data_type: c_int,
    limit_us: c_int,
    found: *mut c_int,
) -> c_int {
    // SAFETY: three ints, as the caller promises.
    let places = unsafe { Places { source: found, tag: found.add(1), length: found.add(2) } };
    // SAFETY: data as the caller promises.
    if let Some(delivered) = unsafe { fast_path::precv((tid, tag), data, count, data_type) } {
        // SAFETY: places as the caller promises.
        unsafe { places.fill(&delivered) };
        return 1;
    }
    call_silent(|guard| {
        let kind = Kind::from_number(data_type).ok_or(Code::BadParam)?;
        let bytes = bytes_of(count, data_type)?;
        let start = if bytes == 0 { NonNull::dangling().as_ptr() } else { data.cast() };
        let limit = Duration::from_micros(limit_us.max(0) as u64);
        let Some(delivered) = precv(guard, tid, tag, &Room { start, bytes, kind }, Some(limit))? else { return Ok(0) };
        // SAFETY: places as the caller promises.
        unsafe { places.fill(&delivered) };
        delivered.failure.map_or(Ok(1), |code| Err(code.into()))
    })
}

/// What [`hpvm_take`] has found.
#[repr(C)]
pub struct Taken {
    /// The buffer; 0 if the message was read to its end and freed.
    mid: c_int,
    source: c_int,
    tag: c_int,
    /// The length of the message in bytes, as an unsigned number.
    length: c_int,
}

/// Receives for at most `limit_us` microseconds (0: what is there) and reads the bytes of the message: all if they fit
/// into `room`, which frees the message, otherwise the first [`SIGN_BYTES`]; nothing if `room` is 0. The active receive
/// buffer stays what it is. Returns 1, 0 if no message has come, or an error code. It is not traced.
///
/// # Safety
/// `data` has room for `room` bytes, and `taken` is valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_take(
    tid: c_int,
    tag: c_int,
    limit_us: c_int,
    data: *mut u8,
    room: c_int,
    taken: *mut Taken,
) -> c_int {
    let room = room.max(0) as usize;
    if room >= fast_path::FMP_BYTES_MAX {
        // SAFETY: room as checked, and as the caller promises.
        if let Some(found) = unsafe { fast_path::take(tid, tag, data) } {
            let length = found.len as c_int;
            // SAFETY: as the caller promises.
            unsafe { taken.write(Taken { mid: 0, source: found.src, tag: found.tag, length }) };
            return 1;
        }
    }
    // SAFETY: as the caller promises.
    let bytes = if room == 0 { &mut [][..] } else { unsafe { writable(data, room) } };
    let limit = Duration::from_micros(limit_us.max(0) as u64);
    call_silent(|guard| {
        guard.enrolled()?;
        let before = guard.task().set_receive_buffer(0)?;
        let found = take(guard, (tid, tag), limit, bytes);
        // The buffer may have been freed while this call waited.
        let _ = guard.task().set_receive_buffer(before);
        let Some(found) = found? else { return Ok(0) };
        // SAFETY: as the caller promises.
        unsafe { taken.write(found) };
        Ok(1)
    })
}

fn take(
    guard: &mut Guard,
    (tid, tag): (c_int, c_int),
    limit: Duration,
    bytes: &mut [u8],
) -> Result<Option<Taken>, Failure> {
    let mid = receive(guard, tid, tag, Some(limit))?;
    if mid == 0 {
        return Ok(None);
    }
    let info = guard.task().message_info(mid)?;
    let length = info.len as u32 as usize;
    let fits = length <= bytes.len() && !bytes.is_empty();
    let read = if fits { length } else { bytes.len().min(SIGN_BYTES) };
    let result = guard.task().unpack(Kind::Byte, &mut bytes[..read]);
    if fits || result.is_err() {
        guard.task().free_buffer(mid)?;
    }
    result?;
    Ok(Some(Taken { mid: if fits { 0 } else { mid }, source: info.src, tag: info.tag, length: info.len }))
}
