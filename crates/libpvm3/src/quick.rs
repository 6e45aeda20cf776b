//! The shortest way through the library, for the calls of which nanoseconds count: tiny messages to a
//! peer that is known, and from one whose message is there or comes at once. What is unusual in any
//! way takes the long way.
//!
//! What these functions save is mostly stores to the stack: a processor holds some dozens of stores
//! back until the line of the queue is its own, and the fewer a message takes, the more messages
//! are on their way at a time.
use crate::errors::call_silent;
use crate::lock;
use crate::memory::writable;
use crate::process::{self, State};
use pvm_task::{Delivered, Kind, Quick};
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
/// The most items that come this way. Whether their bytes are few is looked at further in.
const ITEMS_MAX: usize = 16;

/// Bytes of the user's data, if they are not many.
#[inline(always)]
fn few_bytes<T>(data: *const T, count: c_int, data_type: c_int) -> Option<usize> {
    // What is negative is large then.
    let (count, data_type) = (count as u32 as usize, data_type as u32 as usize);
    if data_type >= ITEM_BYTES.len() || count > ITEMS_MAX || data.is_null() {
        return None;
    }
    Some(count * usize::from(ITEM_BYTES[data_type]))
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

impl State {
    /// Whether messages concern others than who sends or receives them.
    #[inline(always)]
    fn is_watched(&self) -> bool {
        self.attentive || self.watched.is_some()
    }
}

/// `pvm_psend`, if this way can do it; says what it did.
///
/// # Safety
/// The data are there, as the caller of `pvm_psend` promises.
#[inline(always)]
pub unsafe fn psend(tid: c_int, tag: c_int, data: *const c_void, count: c_int, data_type: c_int) -> Quick {
    let Some(bytes) = few_bytes(data, count, data_type) else { return Quick::NotDone };
    let Some(mut inside) = Inside::enter() else { return Quick::NotDone };
    let state = inside.state();
    if state.is_watched() {
        return Quick::NotDone;
    }
    // SAFETY: as promised.
    state.task.psend_quickly(tid, tag, unsafe { slice::from_raw_parts(data.cast(), bytes) })
}

/// What is left to do after [`Quick::Wake`].
#[cold]
#[inline(never)]
pub fn wake(tid: c_int) -> c_int {
    call_silent(|entry| {
        entry.task().wake(tid as u32);
        Ok(0)
    })
}

/// `pvm_precv`, if this way can do it, waiting a little.
///
/// # Safety
/// There is room, as the caller of `pvm_precv` promises.
#[inline(always)]
pub unsafe fn precv(
    (tid, tag): (c_int, c_int),
    data: *mut c_void,
    count: c_int,
    data_type: c_int,
) -> Option<Delivered> {
    let bytes = few_bytes(data, count, data_type)?;
    let mut inside = Inside::enter()?;
    let state = inside.state();
    if state.is_watched() {
        return None;
    }
    let filter = state.task.filter(tid, tag);
    // SAFETY: as promised.
    state.task.precv_quickly(&filter, unsafe { writable(data.cast(), bytes) })
}

/// `pvm_initsend`, if this way can do it.
#[inline(always)]
pub fn init_send(encoding: c_int) -> Option<c_int> {
    Inside::enter()?.state().task.init_send_quickly(encoding)
}

/// `pvm_send`, if this way can do it; says what it did.
#[inline(always)]
pub fn send(tid: c_int, tag: c_int) -> Quick {
    let Some(mut inside) = Inside::enter() else { return Quick::NotDone };
    let state = inside.state();
    if state.is_watched() { Quick::NotDone } else { state.task.send_quickly(tid, tag) }
}

/// `pvm_recv`, if this way can do it, waiting a little.
#[inline(always)]
pub fn receive(tid: c_int, tag: c_int) -> Option<c_int> {
    let mut inside = Inside::enter()?;
    let state = inside.state();
    if state.is_watched() || state.matcher.is_some() {
        return None;
    }
    let filter = state.task.filter(tid, tag);
    state.task.receive_quickly(&filter)
}

/// Bytes of packed items, if there are some and not many, one after another.
#[inline(always)]
fn few_items<T>(items: *const T, count: c_int, stride: c_int, kind: Kind) -> Option<usize> {
    let count = usize::try_from(count).ok().filter(|count| (1..=ITEMS_MAX).contains(count))?;
    (stride == 1 && !items.is_null()).then_some(count * kind.size())
}

/// Packing, if this way can do it; says whether it did.
///
/// # Safety
/// The items are there, as the caller of `pvm_pk*` promises.
#[inline(always)]
pub unsafe fn pack(kind: Kind, items: *const u8, count: c_int, stride: c_int) -> bool {
    let Some(bytes) = few_items(items, count, stride, kind) else { return false };
    let Some(mut inside) = Inside::enter() else { return false };
    // SAFETY: as promised.
    inside.state().task.pack_quickly(kind, unsafe { slice::from_raw_parts(items, bytes) })
}

/// Unpacking, if this way can do it; says whether it did.
///
/// # Safety
/// There is room, as the caller of `pvm_upk*` promises.
#[inline(always)]
pub unsafe fn unpack(kind: Kind, items: *mut u8, count: c_int, stride: c_int) -> bool {
    let Some(bytes) = few_items(items, count, stride, kind) else { return false };
    let Some(mut inside) = Inside::enter() else { return false };
    // SAFETY: as promised.
    inside.state().task.unpack_quickly(kind, unsafe { writable(items, bytes) })
}
