//! Lists that a Fortran program reads entry by entry: each call returns the next entry. The first call fetches the list
//! and keeps a copy of it. Later calls return the entries of this copy, until its end, or until the program passes the
//! count [`ANEW`], which fetches a new list.
use super::text::{c_text, store_text};
use crate::cursors::{Cursors, HostEntry, MailboxEntry, TaskEntry};
use crate::errors::call_silent;
use crate::hosts::pvm_config;
use crate::lists::{CHostInfo, CMailboxInfo, CTaskInfo};
use crate::mailbox::pvm_getmboxinfo;
use crate::memory::{bytes, items, store, store_all};
use crate::tasks::pvm_tasks;
use pvm_core::codes::Code;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

/// The value of the count argument that requests a new list.
const ANEW: c_int = -1;
/// The value of `info` when a call has returned a host or a task.
const ENTRY: c_int = 1;

/// Calls `work` with the lists; returns `None` in a signal handler that has interrupted a call, since such a handler
/// cannot use the library.
fn with<R>(work: impl FnOnce(&mut Cursors) -> R) -> Option<R> {
    let mut result = None;
    call_silent(|guard| {
        result = Some(work(&mut guard.state().lists.cursors));
        Ok(0)
    });
    result
}

/// Returns the hosts of the machine and the number of their data formats.
fn hosts() -> Result<(Vec<HostEntry>, c_int), c_int> {
    let (mut count, mut formats, mut list) = (0, 0, null_mut());
    // SAFETY: places of our own; the list is valid until the next call of `pvm_config`, and its
    // texts are C strings.
    unsafe {
        let code = pvm_config(&mut count, &mut formats, &mut list);
        let list: &[CHostInfo] = if code < 0 { return Err(code) } else { items(list, count).unwrap_or_default() };
        let host = |host: &CHostInfo| HostEntry {
            tid: host.tid,
            name: bytes(host.name).unwrap_or_default().to_vec(),
            arch: bytes(host.arch).unwrap_or_default().to_vec(),
            speed: host.speed,
        };
        Ok((list.iter().map(host).collect(), formats))
    }
}

fn next_host(anew: bool) -> Result<Option<(c_int, c_int, HostEntry)>, c_int> {
    if anew || with(|cursors| cursors.hosts.is_at_its_start()) == Some(true) {
        let (hosts, formats) = hosts()?;
        with(|cursors| {
            cursors.hosts.begin(hosts);
            cursors.formats = formats;
        });
    }
    let next = with(|cursors| {
        let host = cursors.hosts.step_around()?;
        Some((cursors.hosts.entries.len() as c_int, cursors.formats, host))
    });
    next.ok_or(Code::SysErr.number())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfconfig_(
    count: *mut c_int,
    formats: *mut c_int,
    tid: *mut c_int,
    name: *mut c_char,
    arch: *mut c_char,
    speed: *mut c_int,
    info: *mut c_int,
    name_length: c_int,
    arch_length: c_int,
) {
    // SAFETY: a number and places for results, as the caller promises.
    unsafe {
        match next_host(*count == ANEW) {
            Ok(Some((hosts, different, host))) => {
                store(count, hosts);
                store(formats, different);
                store(tid, host.tid);
                store_text(name, name_length, &host.name);
                store_text(arch, arch_length, &host.arch);
                store(speed, host.speed);
                store(info, ENTRY);
            }
            Ok(None) => {}
            Err(code) => store(info, code),
        }
    }
}

/// Returns the tasks on a host, or on all hosts.
fn tasks(place: c_int) -> Result<Vec<TaskEntry>, c_int> {
    let (mut count, mut list) = (0, null_mut());
    // SAFETY: places of our own; the list is valid until the next call of `pvm_tasks`, and its texts
    // are C strings.
    unsafe {
        let code = pvm_tasks(place, &mut count, &mut list);
        let list: &[CTaskInfo] = if code < 0 { return Err(code) } else { items(list, count).unwrap_or_default() };
        let task = |task: &CTaskInfo| TaskEntry {
            tid: task.tid,
            parent: task.parent,
            host: task.host,
            flags: task.flags,
            name: bytes(task.name).unwrap_or_default().to_vec(),
        };
        Ok(list.iter().map(task).collect())
    }
}

fn next_task(anew: bool, place: c_int) -> Result<Option<(c_int, TaskEntry)>, c_int> {
    if anew || with(|cursors| cursors.tasks.is_at_its_start()) == Some(true) {
        let tasks = tasks(place)?;
        with(|cursors| cursors.tasks.begin(tasks));
    }
    let next = with(|cursors| {
        let task = cursors.tasks.step_around()?;
        Some((cursors.tasks.entries.len() as c_int, task))
    });
    next.ok_or(Code::SysErr.number())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmftasks_(
    place: *const c_int,
    count: *mut c_int,
    tid: *mut c_int,
    parent: *mut c_int,
    host: *mut c_int,
    flags: *mut c_int,
    name: *mut c_char,
    info: *mut c_int,
    name_length: c_int,
) {
    // SAFETY: numbers and places for results, as the caller promises.
    unsafe {
        match next_task(*count == ANEW, *place) {
            Ok(Some((tasks, task))) => {
                store(count, tasks);
                store(tid, task.tid);
                store(parent, task.parent);
                store(host, task.host);
                store(flags, task.flags);
                store_text(name, name_length, &task.name);
                store(info, ENTRY);
            }
            Ok(None) => {}
            Err(code) => store(info, code),
        }
    }
}

/// Returns the classes that match a pattern.
///
/// # Safety
/// `pattern` is a C string.
unsafe fn mailboxes(pattern: *const c_char) -> Result<Vec<MailboxEntry>, c_int> {
    let (mut count, mut list) = (0, null_mut());
    // SAFETY: a pattern as promised by the caller, and places of our own; the list is valid until the next call of
    // `pvm_getmboxinfo`, its texts are C strings, and its arrays have the length that it states.
    unsafe {
        let code = pvm_getmboxinfo(pattern, &mut count, &mut list);
        let list: &[CMailboxInfo] = if code < 0 { return Err(code) } else { items(list, count).unwrap_or_default() };
        let mailbox = |class: &CMailboxInfo| MailboxEntry {
            name: bytes(class.name).unwrap_or_default().to_vec(),
            indices: items(class.indices, class.count).unwrap_or_default().to_vec(),
            owners: items(class.owners, class.count).unwrap_or_default().to_vec(),
            flags: items(class.flags, class.count).unwrap_or_default().to_vec(),
        };
        Ok(list.iter().map(mailbox).collect())
    }
}

/// # Safety
/// `pattern` is a C string.
unsafe fn next_mailbox(anew: bool, pattern: *const c_char) -> Result<(c_int, MailboxEntry), c_int> {
    if anew || with(|cursors| cursors.mailboxes.is_at_its_start()) == Some(true) {
        // SAFETY: as promised by the caller.
        let found = unsafe { mailboxes(pattern) }?;
        with(|cursors| cursors.mailboxes.begin(found));
    }
    let next = with(|cursors| {
        let mailbox = cursors.mailboxes.step()?;
        Some((cursors.mailboxes.entries.len() as c_int, mailbox))
    });
    next.ok_or(Code::SysErr.number())?.ok_or(Code::NotFound.number())
}

/// Returns the entries of one class per call. After the last class, one call returns `PvmNotFound`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfgetmboxinfo_(
    pattern: *const c_char,
    name: *mut c_char,
    classes: *mut c_int,
    entries: *mut c_int,
    indices: *mut c_int,
    owners: *mut c_int,
    flags: *mut c_int,
    info: *mut c_int,
    pattern_length: c_int,
    name_length: c_int,
) {
    // SAFETY: texts, a number and places for results, as the caller promises. The arrays are as long as those of
    // `pvm_getmboxinfo`.
    unsafe {
        let pattern = c_text(pattern, pattern_length);
        match next_mailbox(*classes == ANEW, pattern.as_ptr()) {
            Ok((count, mailbox)) => {
                let length = mailbox.indices.len() as c_int;
                store_text(name, name_length, &mailbox.name);
                store(classes, count);
                store(entries, length);
                store_all(indices, length, &mailbox.indices);
                store_all(owners, length, &mailbox.owners);
                store_all(flags, length, &mailbox.flags);
                store(info, 0);
            }
            Err(code) => store(info, code),
        }
    }
}
