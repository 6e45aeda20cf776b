//! The C interface of FMP (Fast Message Passing, the papers' layer) by itself: `libfmp.so` and `libfmp.a`, with the
//! functions of `include/fmp.h`. `docs/fmp.md` describes it.
//!
//! Every function jumps to the one in `libpvm3` that does the work (`crates/libpvm3/src/fmp.rs`), because a process that
//! is linked to both libraries has one task. This crate links no other crate of hpvm: `libfmp.so` needs `libpvm3.so.3`,
//! and finds it in its own directory.
#![allow(clippy::missing_safety_doc)] // the manual pages say what callers must ensure

use std::ffi::{CStr, c_char, c_int, c_void};

unsafe extern "C" {
    safe fn hpvm_fmp_self() -> c_int;
    safe fn hpvm_fmp_parent() -> c_int;
    fn hpvm_fmp_siblings(addresses: *mut c_int, room: usize) -> c_int;
    fn hpvm_fmp_send(destination: c_int, tag: c_int, data: *const c_void, length: usize) -> c_int;
    fn hpvm_fmp_receive(source: c_int, tag: c_int, data: *mut c_void, size: usize, info: *mut c_void) -> c_int;
    fn hpvm_fmp_probe_local(source: c_int, tag: c_int, info: *mut c_void) -> c_int;
    fn hpvm_fmp_probe_network(source: c_int, tag: c_int, info: *mut c_void) -> c_int;
}

/// Returns the address of this task.
#[unsafe(no_mangle)]
pub extern "C" fn fmp_self() -> c_int {
    hpvm_fmp_self()
}

/// Returns the address of the task that started this one.
#[unsafe(no_mangle)]
pub extern "C" fn fmp_parent() -> c_int {
    hpvm_fmp_parent()
}

/// Stores the addresses of the tasks that were started together with this one. Returns their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fmp_siblings(addresses: *mut c_int, room: usize) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { hpvm_fmp_siblings(addresses, room) }
}

/// Sends a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fmp_send(destination: c_int, tag: c_int, data: *const c_void, length: usize) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { hpvm_fmp_send(destination, tag, data, length) }
}

/// Receives a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fmp_receive(
    source: c_int,
    tag: c_int,
    data: *mut c_void,
    size: usize,
    info: *mut c_void,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { hpvm_fmp_receive(source, tag, data, size, info) }
}

/// Looks for a message of a task of this host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fmp_probe_local(source: c_int, tag: c_int, info: *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { hpvm_fmp_probe_local(source, tag, info) }
}

/// Looks for a message of a task of another host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fmp_probe_network(source: c_int, tag: c_int, info: *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { hpvm_fmp_probe_network(source, tag, info) }
}

/// The texts of the error codes, from 0 downwards.
const TEXTS: [&CStr; 8] = [
    c"no error",
    c"a parameter is wrong",
    c"no memory for the message, or no file descriptor for the connection",
    c"no virtual machine: no daemon runs, or it has ended",
    c"the message is longer than the memory for it",
    c"the message is longer than any message may be",
    c"no task has started this task",
    c"the call was made inside another call",
];

/// Returns the text of an error code.
#[unsafe(no_mangle)]
pub extern "C" fn fmp_strerror(code: c_int) -> *const c_char {
    let number = code.checked_neg().and_then(|number| usize::try_from(number).ok());
    number.and_then(|number| TEXTS.get(number)).unwrap_or(&c"not an error code of FMP").as_ptr()
}
