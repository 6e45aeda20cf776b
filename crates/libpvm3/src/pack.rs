//! Packing and unpacking (contract 2.1). No call here needs a daemon.
use crate::errors::{Outcome, call, call_silent, lpvm_error};
use crate::memory::{required_bytes, writable};
use crate::process::Guard;
use crate::trace::{Values, address, traced_code, traced_inline};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::trace::Value;
use pvm_task::{Encoding, Kind, Source, Task};
use std::ffi::{CStr, c_char, c_double, c_float, c_int, c_long, c_short, c_uint, c_ulong, c_ushort, c_void};
use std::ptr::NonNull;
use std::slice;

macro_rules! packers {
    ($($pack:ident $packed:ident $unpack:ident $unpacked:ident $type:ty, $kind:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pack(items: *const $type, count: c_int, stride: c_int) -> c_int {
            #[inline(never)]
            fn slow(items: *const $type, count: c_int, stride: c_int) -> c_int {
                traced_inline!(Event::$packed, traced_items(items, count, stride), || {
                    // SAFETY: items as the caller of the outer function promises.
                    call(stringify!($pack), |guard| unsafe { pack(guard, Kind::$kind, items.cast(), count, stride) })
                })
            }
            // SAFETY: items as the caller promises.
            let done = unsafe { crate::fast_path::pack(Kind::$kind, items.cast(), count, stride) };
            if done { 0 } else { slow(items, count, stride) }
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $unpack(items: *mut $type, count: c_int, stride: c_int) -> c_int {
            #[inline(never)]
            fn slow(items: *mut $type, count: c_int, stride: c_int) -> c_int {
                traced_inline!(Event::$unpacked, traced_items(items, count, stride), || {
                    // SAFETY: items as the caller of the outer function promises.
                    call(stringify!($unpack), |guard| unsafe {
                        unpack(guard, Kind::$kind, items.cast(), count, stride)
                    })
                })
            }
            // SAFETY: items as the caller promises.
            let done = unsafe { crate::fast_path::unpack(Kind::$kind, items.cast(), count, stride) };
            if done { 0 } else { slow(items, count, stride) }
        }
    )*};
}

/// Returns the traced values of the items of a call.
fn traced_items<T>(items: *const T, count: c_int, stride: c_int) -> impl FnOnce(&mut Task) -> Values {
    move |_| vec![address(items), Value::Int(count), Value::Int(stride)]
}

packers! {
    pvm_pkbyte Pkbyte pvm_upkbyte Upkbyte c_char, Byte;
    pvm_pkshort Pkshort pvm_upkshort Upkshort c_short, Short;
    pvm_pkushort Pkushort pvm_upkushort Upkushort c_ushort, Ushort;
    pvm_pkint Pkint pvm_upkint Upkint c_int, Int;
    pvm_pkuint Pkuint pvm_upkuint Upkuint c_uint, Uint;
    pvm_pklong Pklong pvm_upklong Upklong c_long, Long;
    pvm_pkulong Pkulong pvm_upkulong Upkulong c_ulong, Ulong;
    pvm_pkfloat Pkfloat pvm_upkfloat Upkfloat c_float, Float;
    pvm_pkdouble Pkdouble pvm_upkdouble Upkdouble c_double, Double;
    pvm_pkcplx Pkcplx pvm_upkcplx Upkcplx c_float, Cplx;
    pvm_pkdcplx Pkdcplx pvm_upkdcplx Upkdcplx c_double, Dcplx;
}

/// Checks a count of items: they fit in memory. The pointer may be null if there are no items.
#[inline(always)]
fn checked_count(items: *const u8, count: c_int, kind: Kind) -> Result<usize, Code> {
    match usize::try_from(count) {
        Ok(0) => Ok(0),
        Ok(count) if !items.is_null() && count.checked_mul(kind.size()).is_some() => Ok(count),
        _ => Err(Code::BadParam),
    }
}

/// Packs `count` items; the distance from one to the next is `stride` items.
///
/// # Safety
/// `items` points to the items, and they do not change during the call (with in-place encoding: until after the send).
#[inline(always)]
unsafe fn pack(guard: &mut Guard, kind: Kind, items: *const u8, count: c_int, stride: c_int) -> Outcome {
    let count = checked_count(items, count, kind)?;
    if stride != 1 {
        // SAFETY: as promised by the caller.
        return unsafe { pack_strided(guard, kind, items, count, stride) };
    }
    let items = if count == 0 { NonNull::dangling().as_ptr() } else { items };
    // SAFETY: as promised by the caller.
    let bytes = unsafe { slice::from_raw_parts(items, count * kind.size()) };
    match guard.task().pack(kind, bytes) {
        Ok(()) => Ok(0),
        Err(Code::NotImpl) => Ok(pack_in_place(guard, bytes)?),
        Err(code) => Err(code.into()),
    }
}

/// A piece of the user's memory that a send reads.
struct Piece {
    start: *const u8,
    bytes: usize,
}
// SAFETY: a plain address; any thread may read the memory.
unsafe impl Send for Piece {}
impl Source for Piece {
    fn bytes(&self) -> &[u8] {
        // SAFETY: a caller that packs in place promises that the memory is valid until the message was sent.
        unsafe { slice::from_raw_parts(self.start, self.bytes) }
    }
}

/// Packs a piece into an in-place buffer.
#[cold]
fn pack_in_place(guard: &mut Guard, piece: &[u8]) -> Result<c_int, Code> {
    guard.task().pack_in_place(Box::new(Piece { start: piece.as_ptr(), bytes: piece.len() }))?;
    Ok(0)
}

/// Returns the address of item `index`.
fn strided(items: *const u8, index: usize, stride: c_int, size: usize) -> *const u8 {
    items.wrapping_offset((index as isize).wrapping_mul(stride as isize).wrapping_mul(size as isize))
}

/// Calls `$function` with the size of an item as a constant, so that each item is copied by one move instruction.
macro_rules! with_item_size {
    ($kind:expr, $function:ident ( $($argument:expr),* )) => {
        match $kind.size() {
            1 => $function::<1>($($argument),*),
            2 => $function::<2>($($argument),*),
            4 => $function::<4>($($argument),*),
            8 => $function::<8>($($argument),*),
            _ => $function::<16>($($argument),*),
        }
    };
}

/// # Safety
/// As [`pack`].
#[inline(never)]
unsafe fn pack_strided(guard: &mut Guard, kind: Kind, items: *const u8, count: usize, stride: c_int) -> Outcome {
    if guard.task().send_encoding()? == Encoding::InPlace {
        return Err(Code::NotImpl.into());
    }
    guard.task().pack_with(kind, count, &mut |first, room| {
        // SAFETY: the task asks only for items below `count`, which exist.
        unsafe { with_item_size!(kind, gather(items, first, stride, room)) }
    })?;
    Ok(0)
}

/// Copies items, from item `first` on, into `room`.
///
/// # Safety
/// There are at least as many items as fit in `room`.
unsafe fn gather<const SIZE: usize>(items: *const u8, first: usize, stride: c_int, room: &mut [u8]) {
    for (index, place) in room.chunks_exact_mut(SIZE).enumerate() {
        let item = strided(items, first + index, stride, SIZE).cast::<[u8; SIZE]>();
        // SAFETY: as promised by the caller.
        place.copy_from_slice(&unsafe { item.read_unaligned() });
    }
}

/// Unpacks `count` items; the distance from one to the next is `stride` items.
///
/// # Safety
/// There is room for the items, and nothing else uses this room during the call.
#[inline(always)]
unsafe fn unpack(guard: &mut Guard, kind: Kind, items: *mut u8, count: c_int, stride: c_int) -> Outcome {
    let count = checked_count(items, count, kind)?;
    if stride != 1 {
        // SAFETY: as promised by the caller.
        return unsafe { unpack_strided(guard, kind, items, count, stride) };
    }
    let items = if count == 0 { NonNull::dangling().as_ptr() } else { items };
    // SAFETY: as promised by the caller.
    let bytes = unsafe { writable(items, count * kind.size()) };
    guard.task().unpack(kind, bytes)?;
    Ok(0)
}

/// # Safety
/// As [`unpack`].
#[inline(never)]
unsafe fn unpack_strided(guard: &mut Guard, kind: Kind, items: *mut u8, count: usize, stride: c_int) -> Outcome {
    guard.task().unpack_with(kind, count, &mut |first, from| {
        // SAFETY: the task brings only items below `count`, for which there is room.
        unsafe { with_item_size!(kind, scatter(items, first, stride, from)) }
    })?;
    Ok(0)
}

/// Copies items to their places, from item `first` on.
///
/// # Safety
/// There is room for as many items as there are in `from`.
unsafe fn scatter<const SIZE: usize>(items: *mut u8, first: usize, stride: c_int, from: &[u8]) {
    for (index, item) in from.chunks_exact(SIZE).enumerate() {
        let place = strided(items, first + index, stride, SIZE).cast_mut();
        // SAFETY: as promised by the caller.
        unsafe { place.copy_from(item.as_ptr(), SIZE) };
    }
}

/// # Safety
/// `text` is null or a C string.
unsafe fn pack_string(guard: &mut Guard, text: *const c_char) -> Outcome {
    // SAFETY: as promised by the caller.
    guard.task().pack_string(unsafe { required_bytes(text) }?)?;
    Ok(0)
}

/// # Safety
/// There is room for the next string of the message; `pvm_upkstr` has no bound.
unsafe fn unpack_string(guard: &mut Guard, text: *mut c_char) -> Outcome {
    if text.is_null() {
        return Err(Code::BadParam.into());
    }
    let bytes = guard.task().string_bytes()?;
    // SAFETY: as promised by the caller.
    guard.task().unpack_string(unsafe { writable(text.cast(), bytes) })?;
    Ok(0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_pkstr(text: *const c_char) -> c_int {
    traced_code(
        Event::Pkstr,
        |_| vec![address(text)],
        || {
            // SAFETY: a string as the caller promises.
            call("pvm_pkstr", |guard| unsafe { pack_string(guard, text) })
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_upkstr(text: *mut c_char) -> c_int {
    traced_code(
        Event::Upkstr,
        |_| vec![address(text)],
        || {
            // SAFETY: room as the caller promises.
            call("pvm_upkstr", |guard| unsafe { unpack_string(guard, text) })
        },
    )
}

/// `pvmupkstralloc`: unpacks a string into new memory that the caller frees with `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmupkstralloc(place: *mut *mut c_char) -> c_int {
    call_silent(|guard| {
        if place.is_null() {
            return Err(Code::BadParam.into());
        }
        let bytes = guard.task().string_bytes()?;
        // SAFETY: has no preconditions.
        let text = unsafe { libc::malloc(bytes.max(1)) }.cast::<u8>();
        if text.is_null() {
            return Err(Code::NoMem.into());
        }
        // SAFETY: the memory was allocated just now with at least one byte; `place` is the caller's.
        unsafe {
            text.write(0);
            let unpacked = guard.task().unpack_string(writable(text, bytes));
            if unpacked.is_err() {
                libc::free(text.cast());
            } else {
                place.write(text.cast());
            }
            unpacked?;
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_pkmesg(mid: c_int) -> c_int {
    call_silent(|guard| {
        guard.task().pack_message(mid)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_pkmesgbody(mid: c_int) -> c_int {
    call_silent(|guard| {
        guard.task().pack_message_body(mid)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_upkmesg() -> c_int {
    call_silent(|guard| Ok(guard.task().unpack_message()?))
}

/// Packs items for `shim/format.c`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_shim_pack(kind: c_int, items: *const u8, count: c_int, stride: c_int) -> c_int {
    call_silent(|guard| {
        let kind = Kind::from_number(kind).ok_or(Code::BadParam)?;
        // SAFETY: items as the caller of `pvm_packf` promises. There a negative count stands for none.
        unsafe { pack(guard, kind, items, count.max(0), stride) }
    })
}

/// Unpacks items for `shim/format.c`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_shim_unpack(kind: c_int, items: *mut u8, count: c_int, stride: c_int) -> c_int {
    call_silent(|guard| {
        let kind = Kind::from_number(kind).ok_or(Code::BadParam)?;
        // SAFETY: room as the caller of `pvm_unpackf` promises. There a negative count stands for none.
        unsafe { unpack(guard, kind, items, count.max(0), stride) }
    })
}

/// Packs a string for `shim/format.c`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_shim_pack_string(text: *const c_char) -> c_int {
    // SAFETY: a string as the caller of `pvm_packf` promises.
    call_silent(|guard| unsafe { pack_string(guard, text) })
}

/// Unpacks a string for `shim/format.c`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_shim_unpack_string(text: *mut c_char) -> c_int {
    // SAFETY: room as the caller of `pvm_unpackf` promises.
    call_silent(|guard| unsafe { unpack_string(guard, text) })
}

/// Traces a call of `pvm_packf` (if `packs`) or `pvm_unpackf`. Runs `work(call)`, in which `shim/format.c` packs or
/// unpacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_shim_traced(
    packs: c_int,
    format: *const c_char,
    work: unsafe extern "C" fn(*mut c_void) -> c_int,
    call: *mut c_void,
) -> c_int {
    let event = if packs != 0 { Event::Packf } else { Event::Unpackf };
    let before = |_: &mut Task| {
        // SAFETY: a string, as the caller of the interface promises, or null.
        vec![crate::trace::text(unsafe { crate::memory::bytes(format) })]
    };
    // SAFETY: the shim passes a function and its argument.
    traced_code(event, before, || unsafe { work(call) })
}

/// Sets `pvm_errno` and prints the failure, for `shim/format.c`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_shim_failed(function: *const c_char, code: c_int) -> c_int {
    // SAFETY: the shim passes constant names.
    lpvm_error(unsafe { CStr::from_ptr(function) }.to_bytes(), code)
}
