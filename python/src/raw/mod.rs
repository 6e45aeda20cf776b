//! The C interface of `libpvm3` and Python's buffer interface: all unsafe code of the extension.
//!
//! `libpvm3` locks each call by itself, but the active buffers and the context belong to the process. [`Calls`] stands
//! for the right to change them: a function of this module that has a `Calls` argument changes them only until it
//! returns.
#![allow(unsafe_code)]

mod events;
mod memory;
mod receive;

pub use events::{close, event, is_first_thread, ring, silence, wait_for};
pub use memory::{Buffer, Place, int, new_text, unfilled, utf8};
pub use receive::{Envelope, precv, take, take_and_read, take_from_mailbox};

use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString};
use std::os::fd::RawFd;
use std::ptr::{null, null_mut};

/// The most bytes of one call of `pvm_pkbyte`, whose count is an int.
const CHUNK_BYTES_MAX: usize = 1 << 30;
/// The longest message that is read by the call that receives it.
pub const SHORT_MESSAGE_BYTES_MAX: usize = 32 << 10;

#[repr(C)]
struct HostInfo {
    tid: c_int,
    name: *const c_char,
    arch: *const c_char,
    speed: c_int,
    dsig: c_int,
}

#[repr(C)]
struct TaskInfo {
    tid: c_int,
    parent: c_int,
    host: c_int,
    flag: c_int,
    program: *const c_char,
    pid: c_int,
}

#[repr(C)]
struct MailboxInfo {
    name: *const c_char,
    entries: c_int,
    indices: *const c_int,
    owners: *const c_int,
    flags: *const c_int,
}

type Pack = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int;
type Combine = unsafe extern "C" fn(*mut c_int, *mut c_void, *mut c_void, *mut c_int, *mut c_int);

macro_rules! packers {
    ($($pack:ident $unpack:ident $code:literal),*) => {
        unsafe extern "C" {
            $(fn $pack(data: *mut c_void, count: c_int, stride: c_int) -> c_int;
            fn $unpack(data: *mut c_void, count: c_int, stride: c_int) -> c_int;)*
        }
        /// Returns the functions that pack and unpack items of a type, by PVM's number of the type.
        fn packer(code: c_int) -> Option<(Pack, Pack)> {
            match code {
                $($code => Some(($pack, $unpack)),)*
                _ => None,
            }
        }
    };
}

packers!(
    pvm_pkbyte pvm_upkbyte 1, pvm_pkshort pvm_upkshort 2, pvm_pkint pvm_upkint 3, pvm_pkfloat pvm_upkfloat 4,
    pvm_pkcplx pvm_upkcplx 5, pvm_pkdouble pvm_upkdouble 6, pvm_pkdcplx pvm_upkdcplx 7, pvm_pklong pvm_upklong 8,
    pvm_pkushort pvm_upkushort 9, pvm_pkuint pvm_upkuint 10, pvm_pkulong pvm_upkulong 11
);

unsafe extern "C" {
    fn pvm_mytid() -> c_int;
    fn pvm_parent() -> c_int;
    fn pvm_exit() -> c_int;
    fn pvm_halt() -> c_int;
    fn pvm_start_pvmd(argc: c_int, argv: *const *const c_char, block: c_int) -> c_int;
    fn pvm_spawn(
        file: *const c_char,
        argv: *const *const c_char,
        flags: c_int,
        place: *const c_char,
        count: c_int,
        tids: *mut c_int,
    ) -> c_int;
    fn pvm_kill(tid: c_int) -> c_int;
    fn pvm_sendsig(tid: c_int, signal: c_int) -> c_int;
    fn pvm_pstat(tid: c_int) -> c_int;
    fn pvm_tasks(place: c_int, count: *mut c_int, tasks: *mut *const TaskInfo) -> c_int;
    fn pvm_tidtohost(tid: c_int) -> c_int;
    fn pvm_notify(what: c_int, tag: c_int, count: c_int, tids: *const c_int) -> c_int;
    fn pvm_config(hosts: *mut c_int, formats: *mut c_int, list: *mut *const HostInfo) -> c_int;
    fn pvm_addhosts(hosts: *const *const c_char, count: c_int, results: *mut c_int) -> c_int;
    fn pvm_delhosts(hosts: *const *const c_char, count: c_int, results: *mut c_int) -> c_int;
    fn pvm_mstat(host: *const c_char) -> c_int;
    fn pvm_setopt(what: c_int, value: c_int) -> c_int;
    fn pvm_getopt(what: c_int) -> c_int;
    fn pvm_version() -> *const c_char;
    fn pvm_mkbuf(encoding: c_int) -> c_int;
    fn pvm_freebuf(mid: c_int) -> c_int;
    fn pvm_setsbuf(mid: c_int) -> c_int;
    fn pvm_setrbuf(mid: c_int) -> c_int;
    fn pvm_bufinfo(mid: c_int, bytes: *mut c_int, tag: *mut c_int, tid: *mut c_int) -> c_int;
    fn pvm_pkstr(text: *const c_char) -> c_int;
    fn pvm_upkstr(text: *mut c_char) -> c_int;
    fn pvm_send(tid: c_int, tag: c_int) -> c_int;
    fn pvm_psend(tid: c_int, tag: c_int, data: *const c_void, count: c_int, code: c_int) -> c_int;
    fn hpvm_take(tid: c_int, tag: c_int, limit_us: c_int, data: *mut u8, room: c_int, taken: *mut Taken) -> c_int;
    fn hpvm_precv(
        tid: c_int,
        tag: c_int,
        data: *mut c_void,
        count: c_int,
        code: c_int,
        limit_us: c_int,
        found: *mut c_int,
    ) -> c_int;
    fn pvm_mcast(tids: *const c_int, count: c_int, tag: c_int) -> c_int;
    fn pvm_bcast(group: *const c_char, tag: c_int) -> c_int;
    fn pvm_probe(tid: c_int, tag: c_int) -> c_int;
    fn pvm_getfds(list: *mut *const c_int) -> c_int;
    fn pvm_setcontext(context: c_int) -> c_int;
    fn pvm_newcontext() -> c_int;
    fn pvm_freecontext(context: c_int) -> c_int;
    fn pvm_putinfo(name: *const c_char, mid: c_int, flags: c_int) -> c_int;
    fn pvm_recvinfo(name: *const c_char, index: c_int, flags: c_int) -> c_int;
    fn pvm_delinfo(name: *const c_char, index: c_int, flags: c_int) -> c_int;
    fn pvm_getmboxinfo(pattern: *const c_char, count: *mut c_int, list: *mut *const MailboxInfo) -> c_int;
    fn pvm_joingroup(group: *const c_char) -> c_int;
    fn pvm_lvgroup(group: *const c_char) -> c_int;
    fn pvm_gsize(group: *const c_char) -> c_int;
    fn pvm_gettid(group: *const c_char, instance: c_int) -> c_int;
    fn pvm_getinst(group: *const c_char, tid: c_int) -> c_int;
    fn pvm_barrier(group: *const c_char, count: c_int) -> c_int;
    fn pvm_gather(
        result: *mut c_void,
        data: *const c_void,
        count: c_int,
        code: c_int,
        tag: c_int,
        group: *const c_char,
        root: c_int,
    ) -> c_int;
    fn pvm_scatter(
        result: *mut c_void,
        data: *const c_void,
        count: c_int,
        code: c_int,
        tag: c_int,
        group: *const c_char,
        root: c_int,
    ) -> c_int;
    fn pvm_reduce(
        combine: Combine,
        data: *mut c_void,
        count: c_int,
        code: c_int,
        tag: c_int,
        group: *const c_char,
        root: c_int,
    ) -> c_int;
    fn PvmMax(t: *mut c_int, r: *mut c_void, d: *mut c_void, n: *mut c_int, e: *mut c_int);
    fn PvmMin(t: *mut c_int, r: *mut c_void, d: *mut c_void, n: *mut c_int, e: *mut c_int);
    fn PvmSum(t: *mut c_int, r: *mut c_void, d: *mut c_void, n: *mut c_int, e: *mut c_int);
    fn PvmProduct(t: *mut c_int, r: *mut c_void, d: *mut c_void, n: *mut c_int, e: *mut c_int);
}

/// What `hpvm_take` has found.
#[repr(C)]
#[derive(Default)]
struct Taken {
    mid: c_int,
    source: c_int,
    tag: c_int,
    length: c_int,
}

/// The right to change the process's active buffers and context, with memory for short messages.
pub struct Calls(Box<[u8]>);

impl Calls {
    /// Makes the value. Only the state's lock does so.
    pub(crate) fn new() -> Calls {
        Calls(vec![0; SHORT_MESSAGE_BYTES_MAX].into_boxed_slice())
    }
}

/// A C array of texts that ends with a null pointer.
struct Texts {
    _owned: Vec<CString>,
    pointers: Vec<*const c_char>,
}

fn texts(list: Vec<CString>) -> Texts {
    let mut pointers: Vec<*const c_char> = list.iter().map(|text| text.as_ptr()).collect();
    pointers.push(null());
    Texts { _owned: list, pointers }
}

fn text_of(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the library's texts end with a zero and stay until its next call, which the lock prevents.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// A call with ints only: its name and its function.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident = $call:ident($($argument:ident),*);)*) => {
        $($(#[$doc])* pub fn $name(_: &mut Calls $(, $argument: c_int)*) -> c_int {
            // SAFETY: ints only.
            unsafe { $call($($argument),*) }
        })*
    };
}

plain! {
    /// Calls `pvm_mytid`.
    mytid = pvm_mytid();
    /// Calls `pvm_parent`.
    parent = pvm_parent();
    /// Calls `pvm_exit`.
    exit = pvm_exit();
    /// Calls `pvm_halt`.
    halt = pvm_halt();
    /// Calls `pvm_kill`.
    kill = pvm_kill(tid);
    /// Calls `pvm_sendsig`.
    sendsig = pvm_sendsig(tid, signal);
    /// Calls `pvm_pstat`.
    pstat = pvm_pstat(tid);
    /// Calls `pvm_tidtohost`.
    tidtohost = pvm_tidtohost(tid);
    /// Calls `pvm_setopt`.
    setopt = pvm_setopt(what, value);
    /// Calls `pvm_getopt`.
    getopt = pvm_getopt(what);
    /// Calls `pvm_mkbuf`.
    mkbuf = pvm_mkbuf(encoding);
    /// Calls `pvm_freebuf`.
    freebuf = pvm_freebuf(mid);
    /// Calls `pvm_probe`.
    probe = pvm_probe(tid, tag);
    /// Calls `pvm_setcontext`.
    setcontext = pvm_setcontext(context);
    /// Calls `pvm_newcontext`.
    newcontext = pvm_newcontext();
    /// Calls `pvm_freecontext`.
    freecontext = pvm_freecontext(context);
}

macro_rules! named {
    ($($(#[$doc:meta])* $name:ident = $call:ident($($argument:ident),*);)*) => {
        $($(#[$doc])* pub fn $name(_: &mut Calls, text: &CStr $(, $argument: c_int)*) -> c_int {
            // SAFETY: a text that ends with a zero, which the library only reads, and ints.
            unsafe { $call(text.as_ptr() $(, $argument)*) }
        })*
    };
}

named! {
    /// Calls `pvm_mstat`.
    mstat = pvm_mstat();
    /// Calls `pvm_delinfo`.
    delinfo = pvm_delinfo(index, flags);
    /// Calls `pvm_joingroup`.
    joingroup = pvm_joingroup();
    /// Calls `pvm_lvgroup`.
    lvgroup = pvm_lvgroup();
    /// Calls `pvm_gsize`.
    gsize = pvm_gsize();
    /// Calls `pvm_gettid`.
    gettid = pvm_gettid(instance);
    /// Calls `pvm_getinst`.
    getinst = pvm_getinst(tid);
}

/// Returns the version of PVM's interface.
pub fn version() -> String {
    // SAFETY: no arguments; the result is a constant text.
    text_of(unsafe { pvm_version() })
}

/// Calls `pvm_start_pvmd`; waits for the hosts of a host file.
pub fn start_pvmd(_: &mut Calls, arguments: Vec<CString>) -> c_int {
    let count = arguments.len() as c_int;
    let arguments = texts(arguments);
    // SAFETY: an array of `count` texts.
    unsafe { pvm_start_pvmd(count, arguments.pointers.as_ptr(), 1) }
}

/// Calls `pvm_spawn`. Returns its result and the tids.
pub fn spawn(
    _: &mut Calls,
    file: &CStr,
    argv: Vec<CString>,
    flags: c_int,
    place: &CStr,
    count: c_int,
) -> (c_int, Vec<c_int>) {
    let argv = texts(argv);
    let mut tids = vec![0; count.max(0) as usize];
    // SAFETY: texts, an array of texts that ends with a null pointer, and room for `count` tids.
    let code =
        unsafe { pvm_spawn(file.as_ptr(), argv.pointers.as_ptr(), flags, place.as_ptr(), count, tids.as_mut_ptr()) };
    (code, tids)
}

/// Calls `pvm_notify` with these tids; without any, with that count.
pub fn notify(_: &mut Calls, what: c_int, tag: c_int, tids: &[c_int], count: c_int) -> c_int {
    let (count, list) = if tids.is_empty() { (count, null()) } else { (tids.len() as c_int, tids.as_ptr()) };
    // SAFETY: an array of `count` tids, or a null pointer for the kinds that do not use it; others are refused.
    unsafe { pvm_notify(what, tag, count, list) }
}

/// Calls `pvm_addhosts` or `pvm_delhosts`. Returns its result and one code for each host.
pub fn change_hosts(_: &mut Calls, names: Vec<CString>, add: bool) -> (c_int, Vec<c_int>) {
    let mut results = vec![0; names.len()];
    let count = names.len() as c_int;
    let names = texts(names);
    let change = if add { pvm_addhosts } else { pvm_delhosts };
    // SAFETY: an array of `count` texts and room for `count` codes.
    let code = unsafe { change(names.pointers.as_ptr(), count, results.as_mut_ptr()) };
    (code, results)
}

/// A host: tid, name, architecture, speed, data signature.
pub type Host = (c_int, String, String, c_int, c_int);

/// Calls `pvm_config`.
pub fn config(_: &mut Calls) -> Result<Vec<Host>, c_int> {
    let (mut count, mut formats, mut list) = (0, 0, null());
    // SAFETY: places for the results.
    let code = unsafe { pvm_config(&mut count, &mut formats, &mut list) };
    if code < 0 {
        return Err(code);
    }
    // SAFETY: the library has stored `count` entries there.
    let hosts = unsafe { std::slice::from_raw_parts(list, count as usize) };
    Ok(hosts.iter().map(|host| (host.tid, text_of(host.name), text_of(host.arch), host.speed, host.dsig)).collect())
}

/// A task: tid, parent, host, flags, program, process id.
pub type Task = (c_int, c_int, c_int, c_int, String, c_int);

/// Calls `pvm_tasks`.
pub fn tasks(_: &mut Calls, place: c_int) -> Result<Vec<Task>, c_int> {
    let (mut count, mut list) = (0, null());
    // SAFETY: places for the results.
    let code = unsafe { pvm_tasks(place, &mut count, &mut list) };
    if code < 0 {
        return Err(code);
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the library has stored `count` entries there.
    let tasks = unsafe { std::slice::from_raw_parts(list, count as usize) };
    let one = |task: &TaskInfo| (task.tid, task.parent, task.host, task.flag, text_of(task.program), task.pid);
    Ok(tasks.iter().map(one).collect())
}

/// A class of mailbox entries: its name, and for each entry the index, the owner and the flags.
pub type Mailbox = (String, Vec<(c_int, c_int, c_int)>);

/// Calls `pvm_getmboxinfo`.
pub fn mailboxes(_: &mut Calls, pattern: &CStr) -> Result<Vec<Mailbox>, c_int> {
    let (mut count, mut list) = (0, null());
    // SAFETY: a text, and places for the results.
    let code = unsafe { pvm_getmboxinfo(pattern.as_ptr(), &mut count, &mut list) };
    if code < 0 {
        return Err(code);
    }
    if count <= 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the library has stored `count` classes there, each with three arrays of `entries` elements.
    unsafe {
        let classes = std::slice::from_raw_parts(list, count as usize);
        let entry =
            |class: &MailboxInfo, at: usize| (*class.indices.add(at), *class.owners.add(at), *class.flags.add(at));
        let one = |class: &MailboxInfo| {
            (text_of(class.name), (0..class.entries.max(0) as usize).map(|at| entry(class, at)).collect())
        };
        Ok(classes.iter().map(one).collect())
    }
}

/// Where a message goes.
pub enum Target {
    /// To one task.
    Task(c_int),
    /// To several tasks.
    Tasks(Vec<c_int>),
    /// To the other members of a group.
    Group(CString),
    /// To a mailbox, with these flags.
    Mailbox(CString, c_int),
}

/// Sends the buffer. Returns the library's result.
pub fn send(_: &mut Calls, mid: c_int, target: &Target, tag: c_int) -> c_int {
    // SAFETY: arrays with their lengths, texts, and the number of a buffer, which the library checks.
    unsafe {
        if let Target::Mailbox(name, flags) = target {
            return pvm_putinfo(name.as_ptr(), mid, *flags);
        }
        let before = pvm_setsbuf(mid);
        if before < 0 {
            return before;
        }
        let code = match target {
            Target::Task(tid) => pvm_send(*tid, tag),
            Target::Tasks(tids) => pvm_mcast(tids.as_ptr(), tids.len() as c_int, tag),
            Target::Group(name) => pvm_bcast(name.as_ptr(), tag),
            Target::Mailbox(..) => 0,
        };
        pvm_setsbuf(before);
        code
    }
}

/// Packs the items in `data`, of PVM's type `code` and of `size` bytes each.
pub fn pack(_: &mut Calls, mid: c_int, code: c_int, size: usize, data: &Buffer) -> c_int {
    let Some((pack, _)) = packer(code) else { return -2 };
    // SAFETY: the memory stays in place while `data` lives, and the counts add up to its length.
    unsafe { in_buffer(mid, pvm_setsbuf, || chunks(pack, data.0.data, data.len(), size)) }
}

/// Unpacks items into `data` until it is full.
pub fn unpack(_: &mut Calls, mid: c_int, code: c_int, size: usize, data: &Buffer) -> c_int {
    let Some((_, unpack)) = packer(code) else { return -2 };
    // SAFETY: as for `pack`; the memory is writable, since the caller asked for that.
    unsafe { in_buffer(mid, pvm_setrbuf, || chunks(unpack, data.0.data, data.len(), size)) }
}

/// Calls `work` while `mid` is the active buffer.
///
/// # Safety
/// `select` is `pvm_setsbuf` or `pvm_setrbuf`.
unsafe fn in_buffer(mid: c_int, select: unsafe extern "C" fn(c_int) -> c_int, work: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the number of a buffer, which the library checks.
    let before = unsafe { select(mid) };
    if before < 0 {
        return before;
    }
    let code = work();
    // SAFETY: as above.
    unsafe { select(before) };
    code
}

/// Packs or unpacks `bytes` bytes of items of `size` bytes.
fn chunks(call: Pack, data: *mut c_void, bytes: usize, size: usize) -> c_int {
    let (mut at, step) = (0, CHUNK_BYTES_MAX / size.max(1) * size.max(1));
    while at < bytes {
        let now = step.min(bytes - at);
        // SAFETY: the range lies inside the memory; the caller promises that it has `bytes` bytes.
        let code = unsafe { call(data.cast::<u8>().add(at).cast(), (now / size.max(1)) as c_int, 1) };
        if code < 0 {
            return code;
        }
        at += now;
    }
    0
}

/// Packs a text.
pub fn pack_text(_: &mut Calls, mid: c_int, text: &CStr) -> c_int {
    // SAFETY: a text that ends with a zero.
    unsafe { in_buffer(mid, pvm_setsbuf, || pvm_pkstr(text.as_ptr())) }
}

/// Unpacks a text. No text of a message of `bytes` bytes is longer than the message.
pub fn unpack_text(_: &mut Calls, mid: c_int, bytes: usize) -> Result<Vec<u8>, c_int> {
    let mut text = vec![0u8; bytes + 1];
    // SAFETY: room for the longest text that the message can hold, and its final zero.
    let code = unsafe { in_buffer(mid, pvm_setrbuf, || pvm_upkstr(text.as_mut_ptr().cast())) };
    if code < 0 {
        return Err(code);
    }
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(bytes);
    text.truncate(end);
    Ok(text)
}

/// Packs bytes.
pub fn pack_bytes(_: &mut Calls, mid: c_int, bytes: &mut [u8]) -> c_int {
    // SAFETY: the slice's memory; the library only reads it.
    unsafe { in_buffer(mid, pvm_setsbuf, || chunks(pvm_pkbyte, bytes.as_mut_ptr().cast(), bytes.len(), 1)) }
}

/// Unpacks bytes until the slice is full.
pub fn unpack_bytes(_: &mut Calls, mid: c_int, bytes: &mut [u8]) -> c_int {
    // SAFETY: the slice's memory.
    unsafe { in_buffer(mid, pvm_setrbuf, || chunks(pvm_upkbyte, bytes.as_mut_ptr().cast(), bytes.len(), 1)) }
}

/// Unpacks bytes into each place.
pub fn unpack_parts(_: &mut Calls, mid: c_int, places: &[Place]) -> c_int {
    let all = || {
        let codes = places.iter().map(|place| chunks(pvm_upkbyte, place.data, place.bytes, 1));
        codes.into_iter().find(|code| *code < 0).unwrap_or(0)
    };
    // SAFETY: each place has that many bytes, and nobody else uses the new object yet.
    unsafe { in_buffer(mid, pvm_setrbuf, all) }
}

/// Sends the items in `data`, of PVM's type `code` and of `size` bytes each.
pub fn psend(_: &mut Calls, tid: c_int, tag: c_int, code: c_int, size: usize, data: &Buffer) -> c_int {
    let Ok(count) = c_int::try_from(data.len() / size.max(1)) else { return -2 };
    // SAFETY: the memory stays in place while `data` lives, and holds `count` items.
    unsafe { pvm_psend(tid, tag, data.0.data, count, code) }
}

/// Sends bytes.
pub fn psend_bytes(_: &mut Calls, tid: c_int, tag: c_int, bytes: &mut [u8]) -> c_int {
    let Ok(count) = c_int::try_from(bytes.len()) else { return -2 };
    // SAFETY: the slice's memory, which the library only reads.
    unsafe { pvm_psend(tid, tag, bytes.as_mut_ptr().cast(), count, 1) }
}

/// Returns the descriptor that becomes readable when messages arrive.
pub fn descriptor(_: &mut Calls) -> Result<RawFd, c_int> {
    let mut list = null();
    // SAFETY: a place for the result, which then points to at least one descriptor.
    unsafe {
        let count = pvm_getfds(&mut list);
        if count < 1 { Err(count.min(-1)) } else { Ok(*list) }
    }
}

/// Calls `pvm_barrier`. Changes no active buffer, so it needs no [`Calls`]: other threads go on.
pub fn barrier(group: &CStr, count: c_int) -> c_int {
    // SAFETY: a text and an int.
    unsafe { pvm_barrier(group.as_ptr(), count) }
}

/// Calls `pvm_gather`, or `pvm_scatter`, with `count` items from `data` into `result`, which only the root (of a
/// gather) and the members (of a scatter) need. The caller has checked the lengths.
#[allow(clippy::too_many_arguments)]
pub fn collect(
    scatter: bool,
    result: Option<&Buffer>,
    data: Option<&Buffer>,
    count: c_int,
    code: c_int,
    tag: c_int,
    group: &CStr,
    root: c_int,
) -> c_int {
    let pointer = |buffer: Option<&Buffer>| buffer.map_or(null_mut(), |buffer| buffer.0.data);
    let call = if scatter { pvm_scatter } else { pvm_gather };
    // SAFETY: memory that stays in place, of the lengths that the caller has checked.
    unsafe { call(pointer(result), pointer(data), count, code, tag, group.as_ptr(), root) }
}

/// Calls `pvm_reduce` with a built-in operation: 0 maximum, 1 minimum, 2 sum, 3 product.
pub fn reduce(
    operation: usize,
    data: &Buffer,
    count: c_int,
    code: c_int,
    tag: c_int,
    group: &CStr,
    root: c_int,
) -> c_int {
    let operations: [Combine; 4] = [PvmMax, PvmMin, PvmSum, PvmProduct];
    let Some(combine) = operations.get(operation) else { return -2 };
    // SAFETY: memory that stays in place and holds `count` items, as the caller has checked.
    unsafe { pvm_reduce(*combine, data.0.data, count, code, tag, group.as_ptr(), root) }
}
