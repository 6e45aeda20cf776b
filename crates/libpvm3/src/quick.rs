//! The shortest way through the library, for the calls of which nanoseconds count: a short `psend`
//! to a peer that is known, a `precv` whose message is there. What is unusual in any way takes the
//! long way.
//!
//! What these functions save is mostly stores to the stack: a processor holds some dozens of stores
//! back until the line of the queue is its own, and the fewer a message takes, the more messages
//! are on their way at a time.
use crate::lock;
use crate::process::{self, State};
use pvm_task::{Filter, Kind};
use std::ffi::{c_int, c_void};
use std::slice;

/// Bytes of an item, by the number of its data type; 0 for those that take the long way.
const ITEM_BYTES: [u8; 16] = {
    let mut bytes = [0; 16];
    let mut number = 0;
    while number < bytes.len() {
        if let Some(kind) = Kind::from_number(number as i32) {
            bytes[number] = kind.size() as u8;
        }
        number += 1;
    }
    bytes
};
/// Tries to receive before the long way is taken; more than one, for the first may find nothing yet.
const TRIES: u32 = 2;
/// The longest data that come this way, in bytes.
const BYTES_MAX: usize = 32;

/// Bytes of the user's data, if there are some and not many.
#[inline(always)]
fn few_bytes<T>(data: *const T, count: c_int, data_type: c_int) -> Option<usize> {
    let item = *ITEM_BYTES.get(usize::try_from(data_type).ok()?)?;
    let count = usize::try_from(count).ok().filter(|count| *count <= BYTES_MAX)?;
    let bytes = count * usize::from(item);
    (!data.is_null() && (1..=BYTES_MAX).contains(&bytes)).then_some(bytes)
}

/// Being inside, where nothing but the task is looked at before one leaves.
struct Inside;

impl Inside {
    #[inline(always)]
    fn enter() -> Option<Inside> {
        (!crate::trace::may_be_on() && lock::take_alone()).then(|| Inside)
    }

    #[inline(always)]
    fn state(&mut self) -> &mut State {
        // SAFETY: the lock is held; `self` lends the state once at a time.
        unsafe { process::state() }
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        lock::give_alone();
    }
}

/// `pvm_psend`, if this way can do it; says whether it did.
///
/// # Safety
/// The data are there, as the caller of `pvm_psend` promises.
#[inline(always)]
pub unsafe fn psend(tid: c_int, tag: c_int, data: *const c_void, count: c_int, data_type: c_int) -> bool {
    let Some(bytes) = few_bytes(data, count, data_type) else { return false };
    let Some(mut inside) = Inside::enter() else { return false };
    let state = inside.state();
    if state.attentive || state.watched.is_some() {
        return false;
    }
    // SAFETY: as promised.
    state.task.psend_quickly(tid, tag, unsafe { slice::from_raw_parts(data.cast(), bytes) })
}

/// `pvm_precv`, if this way can do it, waiting a little; then `deliver` is told sender, tag and length.
///
/// # Safety
/// There is room, as the caller of `pvm_precv` promises.
#[inline(always)]
pub unsafe fn precv(
    (tid, tag): (c_int, c_int),
    data: *mut c_void,
    count: c_int,
    data_type: c_int,
    deliver: impl FnOnce(c_int, c_int, c_int),
) -> bool {
    let Some(bytes) = few_bytes(data, count, data_type) else { return false };
    let Some(mut inside) = Inside::enter() else { return false };
    let state = inside.state();
    if state.attentive || state.watched.is_some() {
        return false;
    }
    let filter = Filter { src: tid, tag, ctx: state.task.context() };
    // SAFETY: as promised.
    let data = unsafe { slice::from_raw_parts_mut(data.cast(), bytes) };
    for _ in 0..TRIES {
        if let Some(delivered) = state.task.precv_quickly(&filter, data) {
            deliver(delivered.src, delivered.tag, delivered.len as c_int);
            return true;
        }
        // An answer mostly comes while one waits just here: the long way back from a real wait costs
        // as much as the message's own way.
        if !state.task.watch_first() {
            return false;
        }
    }
    false
}
