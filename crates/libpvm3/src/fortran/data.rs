//! Calls with an argument that names the type of the data (`STRING`, `BYTE1`, `INTEGER2`, …).
use crate::memory::store;
use crate::pack;
use crate::receive::pvm_precv;
use crate::send::pvm_psend;
use pvm_core::codes::Code;
use std::ffi::{c_int, c_void};

/// The data types of `fpvm3.h`. A `STRING` is sent as bytes, without a length and without a closing zero.
const STRING: c_int = 0;
const BYTE1: c_int = 1;
const INTEGER2: c_int = 2;
const INTEGER4: c_int = 3;
const REAL4: c_int = 4;
const COMPLEX8: c_int = 5;
const REAL8: c_int = 6;
const COMPLEX16: c_int = 7;
const INTEGER8: c_int = 8;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfpack_(
    what: *const c_int,
    items: *const c_void,
    count: *const c_int,
    stride: *const c_int,
    info: *mut c_int,
) {
    // SAFETY: numbers, items of that type and a place for the result, as the caller promises.
    unsafe {
        let (count, stride) = (*count, *stride);
        let code = match *what {
            STRING | BYTE1 => pack::pvm_pkbyte(items.cast(), count, stride),
            INTEGER2 => pack::pvm_pkshort(items.cast(), count, stride),
            INTEGER4 => pack::pvm_pkint(items.cast(), count, stride),
            REAL4 => pack::pvm_pkfloat(items.cast(), count, stride),
            COMPLEX8 => pack::pvm_pkcplx(items.cast(), count, stride),
            REAL8 => pack::pvm_pkdouble(items.cast(), count, stride),
            COMPLEX16 => pack::pvm_pkdcplx(items.cast(), count, stride),
            INTEGER8 => pack::pvm_pklong(items.cast(), count, stride),
            _ => Code::BadParam.number(),
        };
        store(info, code);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfunpack_(
    what: *const c_int,
    items: *mut c_void,
    count: *const c_int,
    stride: *const c_int,
    info: *mut c_int,
) {
    // SAFETY: numbers, room for items of that type and a place for the result, as the caller
    // promises.
    unsafe {
        let (count, stride) = (*count, *stride);
        let code = match *what {
            STRING | BYTE1 => pack::pvm_upkbyte(items.cast(), count, stride),
            INTEGER2 => pack::pvm_upkshort(items.cast(), count, stride),
            INTEGER4 => pack::pvm_upkint(items.cast(), count, stride),
            REAL4 => pack::pvm_upkfloat(items.cast(), count, stride),
            COMPLEX8 => pack::pvm_upkcplx(items.cast(), count, stride),
            REAL8 => pack::pvm_upkdouble(items.cast(), count, stride),
            COMPLEX16 => pack::pvm_upkdcplx(items.cast(), count, stride),
            INTEGER8 => pack::pvm_upklong(items.cast(), count, stride),
            _ => Code::BadParam.number(),
        };
        store(info, code);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfpsend_(
    tid: *const c_int,
    tag: *const c_int,
    items: *mut c_void,
    count: *const c_int,
    what: *const c_int,
    info: *mut c_int,
) {
    // SAFETY: numbers, items of that type and a place for the result, as the caller promises.
    unsafe { store(info, pvm_psend(*tid, *tag, items.cast(), *count, *what)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfprecv_(
    tid: *const c_int,
    tag: *const c_int,
    items: *mut c_void,
    count: *const c_int,
    what: *const c_int,
    from_tid: *mut c_int,
    from_tag: *mut c_int,
    bytes: *mut c_int,
    info: *mut c_int,
) {
    // SAFETY: numbers, room for items of that type and places for results, as the caller promises.
    unsafe { store(info, pvm_precv(*tid, *tag, items.cast(), *count, *what, from_tid, from_tag, bytes)) }
}
