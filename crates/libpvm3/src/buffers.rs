//! Message buffers (contract 2.1). No call here needs a daemon.
use crate::errors::{call, call_silent, lpvm_error};
use crate::memory::store;
use crate::process::Guard;
use crate::trace::{ints, nothing, traced, traced_code, traced_inline};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::trace::Value;
use pvm_task::MessageInfo;
use std::ffi::c_int;

/// `struct pvmminfo` (contract 1.6).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CMessageInfo {
    pub len: c_int,
    pub ctx: c_int,
    pub tag: c_int,
    pub wid: c_int,
    pub enc: c_int,
    pub crc: c_int,
    pub src: c_int,
    pub dst: c_int,
}
const _: () = assert!(size_of::<CMessageInfo>() == 32);

#[unsafe(no_mangle)]
pub extern "C" fn pvm_initsend(encoding: c_int) -> c_int {
    match crate::fast_path::init_send(encoding) {
        Some(mid) => mid,
        None => init_send(encoding),
    }
}

#[inline(never)]
fn init_send(encoding: c_int) -> c_int {
    traced_inline!(Event::Initsend, move |_| ints(&[encoding]), || {
        let mid = call_silent(|guard| Ok(guard.task().init_send(encoding)?));
        if mid < 0 { init_send_failed(mid) } else { mid }
    },)
}

/// Prints the failure twice, as 3.4.6 does: in 3.4.6 one public function calls another, and each of them prints the
/// failure.
#[cold]
fn init_send_failed(code: c_int) -> c_int {
    lpvm_error(b"pvm_mkbuf", code);
    lpvm_error(b"pvm_initsend", code)
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_mkbuf(encoding: c_int) -> c_int {
    traced_code(
        Event::Mkbuf,
        |_| ints(&[encoding]),
        || call("pvm_mkbuf", |guard| Ok(guard.task().make_buffer(encoding)?)),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_freebuf(mid: c_int) -> c_int {
    traced_code(
        Event::Freebuf,
        |_| ints(&[mid]),
        || {
            call("pvm_freebuf", |guard| {
                guard.task().free_buffer(mid)?;
                Ok(0)
            })
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_getsbuf() -> c_int {
    traced_code(Event::Getsbuf, nothing, || call("pvm_getsbuf", |guard| Ok(guard.task().send_buffer())))
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_getrbuf() -> c_int {
    traced_code(Event::Getrbuf, nothing, || call("pvm_getrbuf", |guard| Ok(guard.task().receive_buffer())))
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_setsbuf(mid: c_int) -> c_int {
    traced_code(
        Event::Setsbuf,
        |_| ints(&[mid]),
        || call("pvm_setsbuf", |guard| Ok(guard.task().set_send_buffer(mid)?)),
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_setrbuf(mid: c_int) -> c_int {
    traced_code(
        Event::Setrbuf,
        |_| ints(&[mid]),
        || call("pvm_setrbuf", |guard| Ok(guard.task().set_receive_buffer(mid)?)),
    )
}

/// Returns the information about a message. The source of a message that this process has made is the tid of this task;
/// to have a tid, the process enrolls if it can.
fn info(guard: &mut Guard, mid: c_int) -> Result<MessageInfo, Code> {
    let info = guard.task().message_info(mid)?;
    if info.src != 0 || guard.task().is_enrolled() {
        return Ok(info);
    }
    guard.enroll_if_possible();
    guard.task().message_info(mid)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_bufinfo(mid: c_int, bytes: *mut c_int, tag: *mut c_int, tid: *mut c_int) -> c_int {
    traced(
        Event::Bufinfo,
        |_| ints(&[mid]),
        || {
            call("pvm_bufinfo", |guard| {
                if mid <= 0 {
                    return Err(Code::BadParam.into());
                }
                let info = info(guard, mid)?;
                // SAFETY: places for the results or null, as the caller promises.
                unsafe {
                    store(bytes, info.len);
                    store(tag, info.tag);
                    store(tid, info.src);
                }
                Ok(0)
            })
        },
        |task, code| match task.message_info(mid) {
            Ok(info) if code >= 0 => ints(&[code, info.len, info.tag, info.src]),
            _ => ints(&[code; 4]),
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getminfo(mid: c_int, place: *mut CMessageInfo) -> c_int {
    traced_code(
        Event::Getminfo,
        |_| ints(&[mid]),
        || {
            call("pvm_getminfo", |guard| {
                let MessageInfo { len, ctx, tag, wid, enc, crc, src, dst } = info(guard, mid)?;
                // SAFETY: a place for the result or null, as the caller promises.
                unsafe { store(place, CMessageInfo { len, ctx, tag, wid, enc, crc, src, dst }) };
                Ok(0)
            })
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_setminfo(mid: c_int, info: *const CMessageInfo) -> c_int {
    traced_code(
        Event::Setminfo,
        |_| ints(&[mid]),
        || {
            call("pvm_setminfo", |guard| {
                // SAFETY: a message header or null, as the caller promises.
                let Some(&CMessageInfo { len, ctx, tag, wid, enc, crc, src, dst }) = (unsafe { info.as_ref() }) else {
                    return Err(Code::BadParam.into());
                };
                let info = MessageInfo { len, ctx, tag, wid, enc, crc, src, dst };
                guard.task().set_message_info(mid, &info)?;
                Ok(0)
            })
        },
    )
}
