//! Calls whose arguments are numbers.
use crate::buffers::{
    CMessageInfo, pvm_bufinfo, pvm_freebuf, pvm_getminfo, pvm_getrbuf, pvm_getsbuf, pvm_initsend, pvm_mkbuf,
    pvm_setminfo, pvm_setrbuf, pvm_setsbuf,
};
use crate::callbacks::Handler;
use crate::handlers::{pvm_addmhf, pvm_delmhf, pvm_freecontext, pvm_getcontext, pvm_newcontext, pvm_setcontext};
use crate::hosts::{pvm_halt, pvm_hostsync};
use crate::memory::store;
use crate::misc::pvmsleep;
use crate::options::{pvm_getopt, pvm_setopt};
use crate::pack::{pvm_pkmesg, pvm_pkmesgbody, pvm_upkmesg};
use crate::receive::{pvm_nrecv, pvm_probe, pvm_recv, pvm_trecv};
use crate::send::{pvm_mcast, pvm_send};
use crate::tasks::{
    pvm_exit, pvm_kill, pvm_mytid, pvm_notify, pvm_parent, pvm_pstat, pvm_sendsig, pvm_siblings, pvm_tidtohost,
};
use pvm_core::codes::Code;
use pvm_task::OptionNumber;
use std::ffi::c_int;
use std::ptr::null;

/// Calls that take numbers and return a number.
macro_rules! numbers {
    ($($name:ident($($argument:ident),*) is $function:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: *const c_int,)* result: *mut c_int) {
            // SAFETY: numbers to read and a place for the result, as every Fortran program passes.
            unsafe { store(result, $function($(*$argument),*)) }
        }
    )*};
}

numbers! {
    pvmfmytid_() is pvm_mytid;
    pvmfparent_() is pvm_parent;
    pvmfexit_() is pvm_exit;
    pvmfhalt_() is pvm_halt;
    pvmfpstat_(tid) is pvm_pstat;
    pvmfkill_(tid) is pvm_kill;
    pvmfsendsig_(tid, signal) is pvm_sendsig;
    pvmftidtohost_(tid) is pvm_tidtohost;
    pvmftidtoh_(tid) is pvm_tidtohost;

    pvmfinitsend_(encoding) is pvm_initsend;
    pvmfmkbuf_(encoding) is pvm_mkbuf;
    pvmffreebuf_(mid) is pvm_freebuf;
    pvmfgetsbuf_() is pvm_getsbuf;
    pvmfgetrbuf_() is pvm_getrbuf;
    pvmfsetsbuf_(mid) is pvm_setsbuf;
    pvmfsetrbuf_(mid) is pvm_setrbuf;
    pvmfpkmesg_(mid) is pvm_pkmesg;
    pvmfpkmesgbody_(mid) is pvm_pkmesgbody;

    pvmfsend_(tid, tag) is pvm_send;
    pvmfrecv_(tid, tag) is pvm_recv;
    pvmfnrecv_(tid, tag) is pvm_nrecv;
    pvmfprobe_(tid, tag) is pvm_probe;

    pvmfgetcontext_() is pvm_getcontext;
    pvmfnewcontext_() is pvm_newcontext;
    pvmfsetcontext_(context) is pvm_setcontext;
    pvmffreecontext_(context) is pvm_freecontext;
    pvmfdelmhf_(handler) is pvm_delmhf;

    pvmfsetopt_(what, value) is pvm_setopt;
    pvmfgetopt_(what) is pvm_getopt;
    pvmfadvise_(route) is advise;
    pvmfserror_(policy) is set_auto_error;
}

/// Implements `pvmfadvise`, an old call that sets the option `PvmRoute`. Returns 0 or an error code, not the previous
/// value.
fn advise(route: c_int) -> c_int {
    pvm_setopt(OptionNumber::Route as c_int, route).min(0)
}

/// Implements `pvmfserror`, an old call that sets the option `PvmAutoErr`.
fn set_auto_error(policy: c_int) -> c_int {
    pvm_setopt(OptionNumber::AutoErr as c_int, policy)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfsleep_(seconds: *const c_int) {
    // SAFETY: a number, as the caller promises.
    pvmsleep(unsafe { *seconds });
}

/// Unpacks from the active receive buffer, as in C. The manual lists the first argument, but it is not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfupkmesg_(_mid: *const c_int, new: *mut c_int) {
    // SAFETY: a place for the result, as the caller promises.
    unsafe { store(new, pvm_upkmesg()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfbufinfo_(
    mid: *const c_int,
    bytes: *mut c_int,
    tag: *mut c_int,
    tid: *mut c_int,
    info: *mut c_int,
) {
    // SAFETY: a number and places for results, as the caller promises.
    unsafe { store(info, pvm_bufinfo(*mid, bytes, tag, tid)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfgetminfo_(
    mid: *const c_int,
    length: *mut c_int,
    context: *mut c_int,
    tag: *mut c_int,
    wait_id: *mut c_int,
    encoding: *mut c_int,
    checksum: *mut c_int,
    source: *mut c_int,
    destination: *mut c_int,
    info: *mut c_int,
) {
    let mut header = CMessageInfo::default();
    // SAFETY: a number and places for results, as the caller promises; the header is ours.
    unsafe {
        let code = pvm_getminfo(*mid, &mut header);
        store(info, code);
        if code < 0 {
            return;
        }
        store(length, header.len);
        store(context, header.ctx);
        store(tag, header.tag);
        store(wait_id, header.wid);
        store(encoding, header.enc);
        store(checksum, header.crc);
        store(source, header.src);
        store(destination, header.dst);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfsetminfo_(
    mid: *const c_int,
    context: *const c_int,
    tag: *const c_int,
    wait_id: *const c_int,
    source: *const c_int,
    destination: *const c_int,
    info: *mut c_int,
) {
    // SAFETY: numbers and a place for the result, as the caller promises; the header is ours.
    unsafe {
        let header = CMessageInfo {
            ctx: *context,
            tag: *tag,
            wid: *wait_id,
            src: *source,
            dst: *destination,
            ..CMessageInfo::default()
        };
        store(info, pvm_setminfo(*mid, &header));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfmcast_(count: *const c_int, tids: *const c_int, tag: *const c_int, info: *mut c_int) {
    // SAFETY: numbers, `count` tids and a place for the result, as the caller promises.
    unsafe { store(info, pvm_mcast(tids, *count, *tag)) }
}

/// The number of seconds that means "no limit" in [`pvmftrecv_`].
const NO_LIMIT: c_int = -1;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmftrecv_(
    tid: *const c_int,
    tag: *const c_int,
    seconds: *const c_int,
    microseconds: *const c_int,
    mid: *mut c_int,
) {
    // SAFETY: numbers and a place for the result, as the caller promises.
    unsafe {
        let limit = libc::timeval { tv_sec: (*seconds).into(), tv_usec: (*microseconds).into() };
        let limit = if *seconds == NO_LIMIT { null() } else { &raw const limit };
        store(mid, pvm_trecv(*tid, *tag, limit));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfnotify_(
    what: *const c_int,
    tag: *const c_int,
    count: *const c_int,
    tids: *const c_int,
    info: *mut c_int,
) {
    // SAFETY: numbers, `count` tids and a place for the result, as the caller promises.
    unsafe { store(info, pvm_notify(*what, *tag, *count, tids)) }
}

/// Returns the tid at position `index`, counted from 0, in the array that `pvm_siblings` returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfsiblings_(count: *mut c_int, index: *const c_int, tid: *mut c_int) {
    let mut list = std::ptr::null_mut();
    // SAFETY: a number and places for results, as the caller promises. The list is valid until the next call of
    // `pvm_siblings`, and has `entries` entries.
    unsafe {
        let entries = pvm_siblings(&mut list);
        store(count, entries);
        let inside = (0..entries).contains(&*index);
        store(tid, if inside { *list.offset(*index as isize) } else { Code::NoTask.number() });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfhostsync_(
    host: *const c_int,
    clock_seconds: *mut c_int,
    clock_microseconds: *mut c_int,
    difference_seconds: *mut c_int,
    difference_microseconds: *mut c_int,
    info: *mut c_int,
) {
    let mut clock = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut difference = clock;
    // SAFETY: a number and places for results, as the caller promises; the times are ours.
    unsafe {
        let code = pvm_hostsync(*host, &mut clock, &mut difference);
        store(info, code);
        if code < 0 {
            return;
        }
        store(clock_seconds, clock.tv_sec as c_int);
        store(clock_microseconds, clock.tv_usec as c_int);
        store(difference_seconds, difference.tv_sec as c_int);
        store(difference_microseconds, difference.tv_usec as c_int);
    }
}

/// The fourth argument has no meaning, but programs pass it. The library calls the handler as it calls a handler of a C
/// program: the buffer number of the message is passed by value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfaddmhf_(
    source: *const c_int,
    tag: *const c_int,
    context: *const c_int,
    _nothing: *const c_int,
    handler: Option<Handler>,
    id: *mut c_int,
) {
    // SAFETY: numbers and a place for the result, as the caller promises.
    unsafe { store(id, pvm_addmhf(*source, *tag, *context, handler)) }
}

/// If `on` is not zero, the output of children goes to the standard output stream of the C library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfcatchout_(on: *const c_int, info: *mut c_int) {
    // SAFETY: a number and a place for the result, as the caller promises.
    unsafe {
        let file = if *on != 0 { crate::catchout::standard_output() } else { std::ptr::null_mut() };
        store(info, crate::catchout::pvm_catchout(file));
    }
}
