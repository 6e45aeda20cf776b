//! Internal functions that the group library of 3.4.6 exports: they return the tid of PVM's group server, and list the
//! members of a group by host. In hpvm the daemons serve groups, but these functions return what programs expect of
//! them.
use super::{find, group_call};
use crate::errors::call;
use crate::memory::store;
use crate::process::Guard;
use crate::send::submit;
use pvm_core::codes::{Code, GROUP_SERVER_CONTEXT, GROUP_SERVER_DUMP};
use pvm_core::tid::Tid;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicPtr};

/// The group server's tid; -1 before the first call that uses it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // the name is PVM's
pub static gstid: AtomicI32 = AtomicI32::new(-1);
/// In 3.4.6 the timeout of calls to the group server; not used here.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // the name is PVM's
pub static pvmgs_tmout: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Returns the tid of the group server: the daemon of this host answers messages to that tid.
fn server(guard: &mut Guard) -> Result<Tid, Code> {
    guard.enrolled()?;
    let own = guard.task().tid().filter(|_| guard.task().is_connected()).ok_or(Code::SysErr)?;
    let server = Tid::group_server(own);
    gstid.store(server.0 as c_int, Relaxed);
    Ok(server)
}

#[unsafe(no_mangle)]
pub extern "C" fn gs_getgstid() -> c_int {
    call("gs_getgstid", |guard| Ok(server(guard)?.0 as c_int))
}

/// Writes the groups to the daemon's log.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_gsdump() {
    call("pvm_gsdump", |guard| {
        let server = server(guard)?;
        submit(guard, |task| task.send_body(server, GROUP_SERVER_CONTEXT, GROUP_SERVER_DUMP, 0, &[]))
    });
}

/// What 3.4.6 reports about the members of a group on one host.
struct HostMembers {
    /// The member with the lowest tid.
    coordinator: c_int,
    members: c_int,
}

/// Returns the members of a group by host.
fn by_host(tids: &[c_int]) -> Vec<(Tid, HostMembers)> {
    let mut parts: Vec<(Tid, HostMembers)> = Vec::new();
    let mut tids = tids.to_vec();
    tids.sort_unstable();
    for tid in tids {
        let host = Tid(tid as u32).host();
        match parts.last_mut() {
            Some((last, part)) if *last == host => part.members += 1,
            _ => parts.push((host, HostMembers { coordinator: tid, members: 1 })),
        }
    }
    parts
}

/// Returns the members of a group; an empty list if the group does not exist.
fn tids(guard: &mut Guard, name: &[u8]) -> Result<Vec<c_int>, Code> {
    match find(guard, name) {
        Ok(group) => Ok(group.tids()),
        Err(Code::NoGroup) => Ok(Vec::new()),
        Err(code) => Err(code),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_grphostinfo(
    group: *const c_char,
    host: c_int,
    coordinator: *mut c_int,
    members: *mut c_int,
    hosts: *mut c_int,
) -> c_int {
    let look = |guard: &mut Guard, name: &[u8]| {
        let parts = by_host(&tids(guard, name)?);
        let found = parts.iter().find(|(other, _)| other.0 as c_int == host).map(|(_, part)| part);
        // SAFETY: null, or places for the results, as the caller promises.
        unsafe {
            store(coordinator, found.map_or(-1, |part| part.coordinator));
            store(members, found.map_or(0, |part| part.members));
            store(hosts, if found.is_some() { parts.len() as c_int } else { 0 });
        }
        Ok(0)
    };
    // SAFETY: null or a C string, as the caller promises.
    unsafe { group_call(group, look) }
}

/// Returns arrays with one entry per host. The caller frees the arrays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_grpvhostinfo(
    group: *const c_char,
    coordinators: *mut *mut c_int,
    members: *mut *mut c_int,
    hosts: *mut c_int,
) -> c_int {
    let look = |guard: &mut Guard, name: &[u8]| {
        let parts = by_host(&tids(guard, name)?);
        // SAFETY: null, or places for the results, as the caller promises.
        unsafe {
            store(hosts, parts.len() as c_int);
            if parts.is_empty() {
                return Err(Code::OutOfRes.into());
            }
            store_array(coordinators, parts.iter().map(|(_, part)| part.coordinator))?;
            store_array(members, parts.iter().map(|(_, part)| part.members))?;
        }
        Ok(0)
    };
    // SAFETY: null or a C string, as the caller promises.
    unsafe { group_call(group, look) }
}

/// Stores an array that was allocated by `malloc`.
///
/// # Safety
/// `place` is null or valid for a write.
unsafe fn store_array(place: *mut *mut c_int, values: impl ExactSizeIterator<Item = c_int>) -> Result<(), Code> {
    if place.is_null() {
        return Ok(());
    }
    // SAFETY: has no preconditions.
    let array = unsafe { libc::malloc(values.len() * size_of::<c_int>()) }.cast::<c_int>();
    if array.is_null() {
        return Err(Code::NoMem);
    }
    for (index, value) in values.enumerate() {
        // SAFETY: inside the array made above.
        unsafe { array.add(index).write(value) }
    }
    // SAFETY: as promised by the caller.
    unsafe { store(place, array) };
    Ok(())
}
