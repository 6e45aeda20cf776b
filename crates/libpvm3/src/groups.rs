//! Groups (contract 2.11), as far as programs need them to load: slang-pvm's module binds these
//! names when it is opened. The group server is not there yet, and each call says so, just as in a
//! machine of PVM that does not find its `pvmgs`.
use crate::data::pvm_errno;
use pvm_core::codes::Code;
use std::ffi::{c_char, c_int};
use std::sync::atomic::Ordering::Relaxed;

/// What a call for `group` gives where no group server is: failures of groups are not printed.
fn without_server(group: *const c_char) -> c_int {
    // SAFETY: null or a C string, as the caller of the interface promises.
    let code = match unsafe { crate::memory::bytes(group) } {
        None | Some(b"") => Code::NullGroup,
        Some(_) => Code::SysErr,
    };
    pvm_errno.store(code.number(), Relaxed);
    code.number()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_joingroup(group: *const c_char) -> c_int {
    without_server(group)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_lvgroup(group: *const c_char) -> c_int {
    without_server(group)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_gsize(group: *const c_char) -> c_int {
    without_server(group)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_gettid(group: *const c_char, _instance: c_int) -> c_int {
    without_server(group)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getinst(group: *const c_char, _tid: c_int) -> c_int {
    without_server(group)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_barrier(group: *const c_char, _count: c_int) -> c_int {
    without_server(group)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_bcast(group: *const c_char, _tag: c_int) -> c_int {
    without_server(group)
}
