//! The fast path through the library, for calls where nanoseconds count: sends of immediate messages to a connected
//! peer, and receives of messages that have arrived or arrive within a short spin. Longer bodies that are copied at once
//! (`psend_at_once`, `precv_at_once`) come next, with more work and by functions that are not inlined in the entry points.
//! All other cases take the ordinary path.
//!
//! These functions are fast mainly because they make fewer stores to the stack than the ordinary path does. While a
//! processor waits for the cache line of the queue, its store buffer holds only some dozens of stores; the fewer stores
//! a message needs, the more messages fit in the store buffer.
use crate::errors::call;
use crate::memory::writable;
use crate::process::{self, State, lock};
use pvm_task::{Delivered, FastSend, FmpFound, Kind};
use std::ffi::{c_int, c_void};
use std::slice;

/// The size of an item in bytes, by the number of its data type; 0 for types that take the ordinary path.
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
/// The most items of one call on the fast path. `pvm-task` also limits their total size.
const ITEMS_MAX: usize = 16;
/// The longest message of FMP on the fast path.
pub const FMP_BYTES_MAX: usize = pvm_fmp::IMMEDIATE_BYTES;

/// Returns the size of the user's data in bytes; `None` for more than [`ITEMS_MAX`] items, a type outside
/// [`ITEM_BYTES`] or a null pointer.
#[inline(always)]
fn few_bytes<T>(data: *const T, count: c_int, data_type: c_int) -> Option<usize> {
    // Converted to an unsigned number, a negative number is larger than every limit below.
    let (count, data_type) = (count as u32 as usize, data_type as u32 as usize);
    if data_type >= ITEM_BYTES.len() || count > ITEMS_MAX || data.is_null() {
        return None;
    }
    Some(count * usize::from(ITEM_BYTES[data_type]))
}

/// Holds the lock during a call on the fast path. Such a call never runs code of the user.
pub struct FastGuard(());

impl FastGuard {
    #[inline(always)]
    fn enter() -> Option<FastGuard> {
        (!crate::trace_mode::may_be_on() && lock::try_acquire_single()).then(|| FastGuard(()))
    }

    #[inline(always)]
    fn state(&mut self) -> &mut State {
        // SAFETY: the lock is held; `self` lends the state once at a time.
        unsafe { process::state() }
    }
}

impl Drop for FastGuard {
    #[inline(always)]
    fn drop(&mut self) {
        lock::release_single();
    }
}

/// The result of a send on the fast path.
pub enum Attempt {
    Done,
    /// It is done, and the receiver is to be woken ([`wake`]).
    Wake,
    /// It was no immediate message. The lock is still held, so that the next attempt need not acquire it again.
    Longer(FastGuard),
    /// The call must take the ordinary path.
    NotDone,
}

impl Attempt {
    #[inline(always)]
    fn of(sent: FastSend, guard: FastGuard) -> Attempt {
        match sent {
            FastSend::Done => Attempt::Done,
            FastSend::Wake => Attempt::Wake,
            FastSend::NotDone => Attempt::Longer(guard),
        }
    }
}

/// `pvm_psend` on the fast path.
///
/// # Safety
/// `data` points to `count` items, as the caller of `pvm_psend` promises.
#[inline(always)]
pub unsafe fn psend(tid: c_int, tag: c_int, data: *const c_void, count: c_int, data_type: c_int) -> Attempt {
    let Some(mut guard) = FastGuard::enter() else { return Attempt::NotDone };
    let state = guard.state();
    if state.ordinary_only {
        return Attempt::NotDone;
    }
    let Some(bytes) = few_bytes(data, count, data_type) else { return Attempt::Longer(guard) };
    // SAFETY: as promised.
    let sent = state.task.psend_fast(tid, tag, unsafe { slice::from_raw_parts(data.cast(), bytes) });
    Attempt::of(sent, guard)
}

/// `pvm_psend` of a body that is copied at once. Returns whether the message was sent.
///
/// # Safety
/// As [`psend`].
#[inline(always)]
pub unsafe fn psend_at_once(
    mut guard: FastGuard,
    (tid, tag): (c_int, c_int),
    data: *const c_void,
    count: c_int,
    data_type: c_int,
) -> bool {
    let Some(bytes) = copied_bytes(data, count, data_type) else { return false };
    // SAFETY: as promised.
    guard.state().task.psend_at_once(tid, tag, unsafe { slice::from_raw_parts(data.cast(), bytes) })
}

/// Returns the size of the user's data in bytes; `None` for a type outside [`ITEM_BYTES`], a null pointer, or a negative
/// count.
#[inline(always)]
fn copied_bytes<T>(data: *const T, count: c_int, data_type: c_int) -> Option<usize> {
    let item_bytes = ITEM_BYTES.get(data_type as u32 as usize).copied().filter(|bytes| *bytes > 0)?;
    let count = usize::try_from(count).ok().filter(|_| !data.is_null())?;
    count.checked_mul(usize::from(item_bytes))
}

/// `fmp_send` on the fast path.
///
/// # Safety
/// `data` points to `bytes` bytes, as the caller of `fmp_send` promises.
#[inline(always)]
pub unsafe fn fmp_send(tid: c_int, tag: c_int, data: *const c_void, bytes: usize) -> FastSend {
    if bytes > FMP_BYTES_MAX || data.is_null() {
        return FastSend::NotDone;
    }
    let Some(mut guard) = FastGuard::enter() else { return FastSend::NotDone };
    let state = guard.state();
    if state.ordinary_only {
        return FastSend::NotDone;
    }
    // SAFETY: as promised.
    state.task.fmp_send_fast(tid, tag, unsafe { slice::from_raw_parts(data.cast(), bytes) })
}

/// `fmp_receive` on the fast path; spins for a short time.
///
/// # Safety
/// `data` has room for `bytes` bytes, as the caller of `fmp_receive` promises.
#[inline(always)]
pub unsafe fn fmp_receive(source: c_int, tag: c_int, data: *mut c_void, bytes: usize) -> Option<FmpFound> {
    if data.is_null() {
        return None;
    }
    let mut guard = FastGuard::enter()?;
    let state = guard.state();
    if state.ordinary_only {
        return None;
    }
    // SAFETY: as promised; the fast path writes no more than the first bytes.
    state.task.fmp_receive_fast(source, tag, unsafe { writable(data.cast(), bytes.min(FMP_BYTES_MAX)) })
}

/// Finishes a send after [`FastSend::Wake`].
#[cold]
#[inline(never)]
pub fn wake(function: &'static str, tid: c_int) -> c_int {
    call(function, |guard| {
        guard.task().wake_receiver(tid as u32)?;
        Ok(0)
    })
}

/// `pvm_precv` on the fast path; spins for a short time.
///
/// # Safety
/// `data` has room for `count` items, as the caller of `pvm_precv` promises.
#[inline(always)]
pub unsafe fn precv(
    (tid, tag): (c_int, c_int),
    data: *mut c_void,
    count: c_int,
    data_type: c_int,
) -> Option<Delivered> {
    let bytes = few_bytes(data, count, data_type)?;
    let mut guard = FastGuard::enter()?;
    let state = guard.state();
    if state.ordinary_only {
        return None;
    }
    let filter = state.task.filter(tid, tag);
    // SAFETY: as promised.
    state.task.precv_fast(&filter, unsafe { writable(data.cast(), bytes) })
}

/// `pvm_precv` of a message that has arrived.
///
/// # Safety
/// As [`precv`].
#[inline]
pub unsafe fn precv_at_once(
    (tid, tag): (c_int, c_int),
    data: *mut c_void,
    count: c_int,
    data_type: c_int,
) -> Option<Delivered> {
    let bytes = copied_bytes(data, count, data_type)?;
    let mut guard = FastGuard::enter()?;
    let state = guard.state();
    if state.ordinary_only {
        return None;
    }
    let filter = state.task.filter(tid, tag);
    // SAFETY: as promised.
    state.task.precv_at_once(&filter, unsafe { writable(data.cast(), bytes) })
}

/// `hpvm_take` on the fast path, for a message of as many bytes as one or two numbers have; spins for a short time.
///
/// # Safety
/// `data` has room for [`FMP_BYTES_MAX`] bytes.
#[inline(always)]
pub unsafe fn take(tid: c_int, tag: c_int, data: *mut u8) -> Option<Delivered> {
    let mut guard = FastGuard::enter()?;
    let state = guard.state();
    if state.ordinary_only || state.matcher.is_some() {
        return None;
    }
    let filter = state.task.filter(tid, tag);
    // SAFETY: as promised.
    state.task.precv_fast(&filter, unsafe { writable(data, FMP_BYTES_MAX) })
}

/// `pvm_initsend` on the fast path.
#[inline(always)]
pub fn init_send(encoding: c_int) -> Option<c_int> {
    FastGuard::enter()?.state().task.init_send_fast(encoding)
}

/// `pvm_send` on the fast path.
#[inline(always)]
pub fn send(tid: c_int, tag: c_int) -> Attempt {
    let Some(mut guard) = FastGuard::enter() else { return Attempt::NotDone };
    let state = guard.state();
    if state.ordinary_only {
        return Attempt::NotDone;
    }
    let sent = state.task.send_fast(tid, tag);
    Attempt::of(sent, guard)
}

/// `pvm_send` of a body that fits in the queue. Returns whether the message was sent.
#[inline(always)]
pub fn send_at_once(mut guard: FastGuard, tid: c_int, tag: c_int) -> bool {
    guard.state().task.send_at_once(tid, tag)
}

/// `pvm_recv` on the fast path; spins for a short time.
#[inline(always)]
pub fn receive(tid: c_int, tag: c_int) -> Option<c_int> {
    let mut guard = FastGuard::enter()?;
    let state = guard.state();
    if state.ordinary_only || state.matcher.is_some() {
        return None;
    }
    let filter = state.task.filter(tid, tag);
    state.task.receive_fast(&filter)
}

/// Returns the size in bytes of the items to pack or unpack; `None` unless these are 1 to [`ITEMS_MAX`] contiguous
/// items.
#[inline(always)]
fn few_items<T>(items: *const T, count: c_int, stride: c_int, kind: Kind) -> Option<usize> {
    let count = usize::try_from(count).ok().filter(|count| (1..=ITEMS_MAX).contains(count))?;
    (stride == 1 && !items.is_null()).then_some(count * kind.size())
}

/// Packs on the fast path. Returns `false` if the call must take the ordinary path.
///
/// # Safety
/// `items` points to `count` items, as the caller of `pvm_pk*` promises.
#[inline(always)]
pub unsafe fn pack(kind: Kind, items: *const u8, count: c_int, stride: c_int) -> bool {
    let Some(bytes) = few_items(items, count, stride, kind) else { return false };
    let Some(mut guard) = FastGuard::enter() else { return false };
    // SAFETY: as promised.
    guard.state().task.pack_fast(kind, unsafe { slice::from_raw_parts(items, bytes) })
}

/// Unpacks on the fast path. Returns `false` if the call must take the ordinary path.
///
/// # Safety
/// `items` has room for `count` items, as the caller of `pvm_upk*` promises.
#[inline(always)]
pub unsafe fn unpack(kind: Kind, items: *mut u8, count: c_int, stride: c_int) -> bool {
    let Some(bytes) = few_items(items, count, stride, kind) else { return false };
    let Some(mut guard) = FastGuard::enter() else { return false };
    // SAFETY: as promised.
    guard.state().task.unpack_fast(kind, unsafe { writable(items, bytes) })
}
