//! Mailboxes (contract 2.10), and older calls that are built on them.
use crate::errors::{Failure, Outcome, call, call_quiet, call_silent};
use crate::lists::{CMailboxInfo, MailboxList};
use crate::memory::{bytes, required_bytes, store};
use crate::process::Guard;
use crate::trace::{ints, text, traced, traced_code};
use crate::wait::{request, wrong_reply};
use pvm_core::codes::{CLASS_NO_RESET, Code, MBOX_DIRECT_INDEX_SHIFT, MBOX_MULTI_INSTANCE, MBOX_PERSISTENT};
use pvm_core::encoding::Writer;
use pvm_core::events::Event;
use pvm_core::proto::{ByteBuf, Mailbox, Message, Reply, Request};
use pvm_core::tid::Tid;
use pvm_core::trace::Value;
use std::ffi::{c_char, c_int};

/// The first index that is too large for `PvmMboxDirectIndex`.
const DIRECT_INDEX_END: c_int = 1 << (31 - MBOX_DIRECT_INDEX_SHIFT);
/// The value in traces that means "no index".
const NO_INDEX: c_int = -1;
/// `pvm_insert` and `pvm_lookup`: any index.
const ANY_INDEX: c_int = -1;

/// Returns the name of a class; fails if it is empty.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn class<'a>(name: *const c_char) -> Result<&'a [u8], Code> {
    // SAFETY: as promised by the caller.
    Some(unsafe { required_bytes(name) }?).filter(|name| !name.is_empty()).ok_or(Code::BadParam)
}

fn index_of(reply: Reply) -> Outcome {
    match reply {
        Reply::Int(index) => Ok(index),
        other => Ok(wrong_reply(other)?),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_putinfo(name: *const c_char, mid: c_int, flags: c_int) -> c_int {
    traced_code(
        Event::Putinfo,
        |_| {
            // SAFETY: a string, as the caller promises, or null.
            vec![text(unsafe { bytes(name) }), Value::Int(NO_INDEX), Value::Int(flags), Value::Int(mid)]
        },
        || {
            call_quiet("pvm_putinfo", &[Code::Denied, Code::Exists], |guard| {
                // SAFETY: a string as the caller promises.
                let name = unsafe { class(name) }?;
                guard.enrolled()?;
                let message = guard.task().export_message(mid)?;
                put(guard, name, flags, message)
            })
        },
    )
}

fn put(guard: &mut Guard, name: &[u8], flags: c_int, message: Message) -> Outcome {
    index_of(request(guard, Request::PutInfo { name: ByteBuf::from(name), flags, message })?)
}

/// Puts a message with that body into a mailbox.
pub fn put_body(guard: &mut Guard, name: &[u8], flags: c_int, body: Vec<u8>) -> Outcome {
    guard.enrolled()?;
    let src = guard.task().tid().unwrap_or(Tid::NONE);
    let message = Message::new(src, Tid::NONE, 0, 0, body);
    put(guard, name, flags, message)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_recvinfo(name: *const c_char, index: c_int, flags: c_int) -> c_int {
    traced(
        Event::Getinfo,
        |_| {
            // SAFETY: a string, as the caller promises, or null.
            vec![text(unsafe { bytes(name) }), Value::Int(index), Value::Int(flags)]
        },
        || {
            call_quiet("pvm_recvinfo", &[Code::NotFound], |guard| {
                // SAFETY: a string as the caller promises.
                let name = unsafe { class(name) }?;
                if index < 0 {
                    return Err(Code::BadParam.into());
                }
                guard.enrolled()?;
                if guard.task().in_handler() {
                    // As in PVM 3.4.6, the answer ends a wait for an entry. Programs end such a wait in this way.
                    guard.task().end_info_wait(Request::RecvInfo { name: ByteBuf::from(name), index, flags })?;
                    return Err(Code::NotImpl.into());
                }
                let message = fetch(guard, name, index, flags);
                guard.task().drop_receive_buffer();
                let mid = guard.task().import_message(message?);
                guard.task().set_receive_buffer(mid)?;
                Ok(mid)
            })
        },
        |_, code| match code {
            0.. => ints(&[0, code]),
            _ => ints(&[code, NO_INDEX]),
        },
    )
}

fn fetch(guard: &mut Guard, name: &[u8], index: c_int, flags: c_int) -> Result<Message, Failure> {
    match request(guard, Request::RecvInfo { name: ByteBuf::from(name), index, flags })? {
        Reply::Info(message) => Ok(message),
        other => Ok(wrong_reply(other)?),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_delinfo(name: *const c_char, index: c_int, flags: c_int) -> c_int {
    traced_code(
        Event::Delinfo,
        |_| {
            // SAFETY: a string, as the caller promises, or null.
            vec![text(unsafe { bytes(name) }), Value::Int(index), Value::Int(flags)]
        },
        || {
            call_quiet("pvm_delinfo", &[Code::Denied, Code::NotFound], |guard| {
                // SAFETY: a string as the caller promises.
                delete(guard, unsafe { class(name) }?, index, flags)
            })
        },
    )
}

fn delete(guard: &mut Guard, name: &[u8], index: c_int, flags: c_int) -> Outcome {
    if index < 0 {
        return Err(Code::BadParam.into());
    }
    index_of(request(guard, Request::DeleteInfo { name: ByteBuf::from(name), index, flags })?)
}

fn mailboxes(guard: &mut Guard, pattern: &[u8]) -> Result<Vec<Mailbox>, Code> {
    match request(guard, Request::MailboxInfo { pattern: ByteBuf::from(pattern) })? {
        Reply::Mailboxes(mailboxes) => Ok(mailboxes),
        other => wrong_reply(other),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getmboxinfo(
    pattern: *const c_char,
    count: *mut c_int,
    list: *mut *mut CMailboxInfo,
) -> c_int {
    traced_code(
        Event::Getmboxinfo,
        |_| {
            // SAFETY: a string, as the caller promises, or null.
            vec![text(unsafe { bytes(pattern) })]
        },
        || {
            call("pvm_getmboxinfo", |guard| {
                guard.state().lists.mailboxes = MailboxList::default();
                // SAFETY: a string as the caller promises.
                let found = mailboxes(guard, unsafe { bytes(pattern) }.unwrap_or_default())?;
                let lists = &mut guard.state().lists;
                lists.mailboxes = MailboxList::new(found);
                // SAFETY: places for the results or null, as the caller promises.
                unsafe {
                    store(count, lists.mailboxes.len());
                    store(list, lists.mailboxes.as_mut_ptr());
                }
                Ok(0)
            })
        },
    )
}

/// Returns the entries of the class with exactly this name: index, owner, flags.
fn entries(guard: &mut Guard, name: &[u8]) -> Result<Vec<(c_int, Tid, c_int)>, Code> {
    let found = mailboxes(guard, &literal_pattern(name))?;
    Ok(found.into_iter().find(|mailbox| mailbox.name == name).map(|mailbox| mailbox.entries).unwrap_or_default())
}

/// Returns a pattern that matches only that name.
fn literal_pattern(name: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(name.len());
    for &byte in name {
        if byte == b'*' {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_insert(name: *const c_char, index: c_int, value: c_int) -> c_int {
    traced_code(
        Event::Insert,
        |_| {
            // SAFETY: a string, as the caller promises, or null.
            vec![text(unsafe { bytes(name) }), Value::Int(index), Value::Int(value)]
        },
        || {
            call_quiet("pvm_insert", &[Code::Denied], |guard| {
                // SAFETY: a string as the caller promises.
                let name = unsafe { class(name) }?;
                let direct = match index {
                    ANY_INDEX => 0,
                    0..DIRECT_INDEX_END => index << MBOX_DIRECT_INDEX_SHIFT,
                    _ => return Err(Code::BadParam.into()),
                };
                let flags = MBOX_PERSISTENT | MBOX_MULTI_INSTANCE | direct;
                let given = put_body(guard, name, flags, Writer::new().int(value).finish())?;
                if index != ANY_INDEX && given != index {
                    // The wanted index was taken, and the program does not want another one.
                    delete(guard, name, given, 0)?;
                    return Err(Code::Denied.into());
                }
                Ok(given)
            })
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_lookup(name: *const c_char, index: c_int, value: *mut c_int) -> c_int {
    traced_code(
        Event::Lookup,
        |_| {
            // SAFETY: a string, as the caller promises, or null.
            vec![text(unsafe { bytes(name) }), Value::Int(index)]
        },
        || {
            call_quiet("pvm_lookup", &[Code::NotFound], |guard| {
                // SAFETY: a string as the caller promises.
                let name = unsafe { class(name) }?;
                guard.enrolled()?;
                let index = match index {
                    ANY_INDEX => entries(guard, name)?.first().ok_or(Code::NotFound)?.0,
                    ..0 => return Err(Code::BadParam.into()),
                    _ => index,
                };
                let message = fetch(guard, name, index, 0)?;
                let found = message.reader().int().ok_or(Code::NoData)?;
                // SAFETY: a place for the result or null, as the caller promises.
                unsafe { store(value, found) };
                Ok(index)
            })
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_delete(name: *const c_char, index: c_int) -> c_int {
    traced_code(
        Event::Delete,
        |_| {
            // SAFETY: a string, as the caller promises, or null.
            vec![text(unsafe { bytes(name) }), Value::Int(index)]
        },
        || {
            call_quiet("pvm_delete", &[Code::NotFound], |guard| {
                // SAFETY: a string as the caller promises.
                delete(guard, unsafe { class(name) }?, index, 0)
            })
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getnoresets(tids: *mut *mut c_int, count: *mut c_int) -> c_int {
    call("pvm_getnoresets", |guard| {
        guard.state().lists.no_resets = Vec::new();
        let owners = entries(guard, CLASS_NO_RESET.as_bytes())?.iter().map(|entry| entry.1.0 as c_int).collect();
        let lists = &mut guard.state().lists;
        lists.no_resets = owners;
        // SAFETY: places for the results or null, as the caller promises.
        unsafe {
            store(count, lists.no_resets.len() as c_int);
            store(tids, lists.no_resets.as_mut_ptr());
        }
        Ok(0)
    })
}

/// `pvmreset`: the function behind the console's `reset`. If `kill` is set, ends all tasks except `own` and those that
/// have set `PvmNoReset`. Removes the entries whose owner has ended: in `class`, or in all classes if `class` is null
/// or empty; at `index`, or at all indices if `index` is negative.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmreset(own: c_int, kill: c_int, class: *const c_char, index: c_int) -> c_int {
    call_silent(|guard| {
        guard.enrolled()?;
        if kill != 0 {
            end_all_but(guard, own)?;
        }
        // SAFETY: a string, as the caller promises, or null.
        let class = unsafe { bytes(class) }.filter(|class| !class.is_empty());
        request(guard, Request::ResetInfo { name: class.map(ByteBuf::from), index: (index >= 0).then_some(index) })?;
        Ok(0)
    })
}

/// Ends all tasks except `own` and those that have set `PvmNoReset`.
fn end_all_but(guard: &mut Guard, own: c_int) -> Result<(), Code> {
    let spared: Vec<Tid> = entries(guard, CLASS_NO_RESET.as_bytes())?.iter().map(|entry| entry.1).collect();
    let Reply::Tasks(tasks) = request(guard, Request::Tasks(Tid::NONE))? else { return Err(Code::BadMsg) };
    for task in tasks.iter().filter(|task| task.tid.0 as c_int != own && !spared.contains(&task.tid)) {
        // A task that has ended meanwhile needs no signal.
        let _ = request(guard, Request::Signal { tid: task.tid, signal: libc::SIGTERM });
    }
    Ok(())
}

/// Enters this task in the mailbox of the tasks that a reset does not end. Returns the index of the entry.
pub fn enter_no_reset(guard: &mut Guard) -> Outcome {
    guard.enrolled()?;
    let tid = guard.task().tid().map_or(0, |tid| tid.0 as c_int);
    put_body(guard, CLASS_NO_RESET.as_bytes(), MBOX_MULTI_INSTANCE, Writer::new().int(tid).finish())
}

/// Removes this task's entry from the mailbox of the tasks that a reset does not end.
pub fn leave_no_reset(guard: &mut Guard, index: c_int) -> Outcome {
    delete(guard, CLASS_NO_RESET.as_bytes(), index, 0)
}
