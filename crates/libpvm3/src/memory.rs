//! The user's memory: turns pointers of C callers into slices, and writes results.
use pvm_core::codes::Code;
use std::ffi::{CStr, c_char, c_int};
use std::slice;

/// Returns a C string; `None` for a null pointer.
///
/// # Safety
/// `text` is null, or a C string that does not change during the call.
pub unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as promised by the caller.
    Some(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns a C string; `BadParam` for a null pointer.
///
/// # Safety
/// As [`bytes`].
pub unsafe fn required_bytes<'a>(text: *const c_char) -> Result<&'a [u8], Code> {
    // SAFETY: as promised by the caller.
    unsafe { bytes(text) }.ok_or(Code::BadParam)
}

/// Returns `count` items. A negative count means zero; the pointer may be null if there are no items.
///
/// # Safety
/// `items` is null or points to `count` items, which do not change during the call.
pub unsafe fn items<'a, T>(items: *const T, count: c_int) -> Result<&'a [T], Code> {
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 {
        return Ok(&[]);
    }
    if items.is_null() {
        return Err(Code::BadParam);
    }
    // SAFETY: as promised by the caller.
    Ok(unsafe { slice::from_raw_parts(items, count) })
}

/// Returns the `bytes` bytes of the program's memory at `start`, for the library to write.
///
/// Perhaps the program has not initialized the memory, and a reference to uninitialized bytes is undefined behaviour.
/// The compiler must assume that an assembly block writes the memory whose address it receives; so after the empty
/// block here the bytes count as initialized.
///
/// # Safety
/// `start` is not null, `bytes` bytes can be written there, and nobody else uses them while the reference lives.
#[inline(always)]
pub unsafe fn writable<'a>(start: *mut u8, bytes: usize) -> &'a mut [u8] {
    #[cfg(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64", target_arch = "s390x"))]
    // SAFETY: there is no instruction.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) start, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64", target_arch = "s390x")))]
    let start = std::hint::black_box(start);
    // SAFETY: as promised by the caller.
    unsafe { slice::from_raw_parts_mut(start, bytes) }
}

/// Returns the strings of a null-terminated array such as `argv`; none for a null pointer.
///
/// # Safety
/// `array` is null, or it points to such an array, which does not change during the call.
pub unsafe fn string_array<'a>(array: *const *const c_char) -> Vec<&'a [u8]> {
    let mut strings = Vec::new();
    if array.is_null() {
        return strings;
    }
    // SAFETY: entries up to the null one are valid, as promised by the caller.
    while let Some(text) = unsafe { bytes(*array.add(strings.len())) } {
        strings.push(text);
    }
    strings
}

/// Returns the strings of an array.
///
/// # Safety
/// `array` is null or points to `count` C strings.
pub unsafe fn strings<'a>(array: *const *const c_char, count: c_int) -> Result<Vec<&'a [u8]>, Code> {
    // SAFETY: as promised by the caller.
    unsafe { items(array, count) }?
        .iter()
        // SAFETY: as promised by the caller.
        .map(|&text| unsafe { required_bytes(text) })
        .collect()
}

/// Stores a result unless the pointer is null.
///
/// # Safety
/// `place` is null or valid for a write.
#[inline(always)]
pub unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: as promised by the caller.
        unsafe { place.write(value) }
    }
}

/// Stores at most `room` results in an array unless the pointer is null.
///
/// # Safety
/// `place` is null or valid for `room` writes.
pub unsafe fn store_all<T: Copy>(place: *mut T, room: c_int, values: &[T]) {
    let room = usize::try_from(room).unwrap_or(0);
    if place.is_null() {
        return;
    }
    for (index, &value) in values.iter().take(room).enumerate() {
        // SAFETY: as promised by the caller.
        unsafe { place.add(index).write(value) }
    }
}
