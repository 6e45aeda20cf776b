//! Enrolling and leaving; parents, siblings, signals and notifies (contract 2.5).
use crate::data::{pvmnsibs, pvmsibtids};
use crate::errors::{self, call, call_quiet, call_silent, lpvm_error};
use crate::leaving::leave_now;
use crate::lists::{CTaskInfo, TaskList};
use crate::memory::{items, store};
use crate::process::{Guard, lock, postponed, takeover};
use crate::trace::{ints, nothing, traced, traced_code};
use crate::wait::{request, wrong_reply};
use pvm_core::codes::{Code, NOTIFY_CANCEL, NOTIFY_HOST_ADD, NOTIFY_ROUTE_ADD};
use pvm_core::events::Event;
use pvm_core::proto::{Reply, Request};
use pvm_core::tid::{HOST_MASK, Tid};
use pvm_core::trace::Value;
use pvm_task::Task;
use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::Ordering::Relaxed;

#[unsafe(no_mangle)]
pub extern "C" fn pvm_mytid() -> c_int {
    traced_code(Event::Mytid, nothing, || {
        call("pvm_mytid", |guard| {
            guard.task().note_closed_descriptors();
            if guard.task().has_lost_descriptors() {
                if guard.task().in_handler() {
                    return Err(Code::SysErr.into());
                }
                // The daemon has seen the end of this task, and the program enrolls again.
                let _ = leave_now(guard);
            }
            guard.enrolled()?;
            Ok(guard.task().tid().ok_or(Code::SysErr)?.0 as c_int)
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_parent() -> c_int {
    traced_code(Event::Parent, nothing, || {
        call_quiet("pvm_parent", &[Code::NoParent, Code::ParentNotSet], |guard| {
            guard.enrolled()?;
            Ok(guard.task().parent()?.0 as c_int)
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_exit() -> c_int {
    errors::exit()
}

/// `pvmendtask`: leaves the machine at once, without waiting for the output of children. Fails only if a message
/// handler calls it. A child of `fork()` whose first call is this one does not take over its parent's task.
#[unsafe(no_mangle)]
pub extern "C" fn pvmendtask() -> c_int {
    if lock::is_fresh() {
        takeover::renounce();
    }
    call_silent(|guard| {
        if guard.task().in_handler() {
            return Err(Code::NotImpl.into());
        }
        if guard.task().is_enrolled() {
            // If this fails, the daemon still notices the end of the connection.
            let _ = leave_now(guard);
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_tidtohost(tid: c_int) -> c_int {
    tid & HOST_MASK as c_int
}

/// Sends a signal; does not print failures.
fn signal(tid: c_int, signal: c_int) -> c_int {
    let mut entered = false;
    let code = call_silent(|guard| {
        entered = true;
        guard.enrolled()?;
        let tid = task_tid(tid)?;
        let order = Request::Signal { tid, signal };
        if guard.task().in_handler() {
            // As in 3.4.6, the signal is sent, although a handler cannot wait for the result.
            guard.task().send_request(order)?;
            return Err(Code::NotImpl.into());
        }
        request(guard, order)?;
        Ok(0)
    });
    match task_tid(tid) {
        _ if entered => code,
        // This is a signal handler that has interrupted a call.
        Ok(tid) if postponed::note(tid, signal) => 0,
        Ok(_) => code,
        Err(code) => code.number(),
    }
}

/// Checks that a tid can be that of a task.
fn task_tid(tid: c_int) -> Result<Tid, Code> {
    Some(Tid(tid as u32)).filter(|tid| tid.is_task()).ok_or(Code::BadParam)
}

fn send_signal(tid: c_int, number: c_int) -> c_int {
    match signal(tid, number) {
        code @ ..0 => lpvm_error(b"pvm_sendsig", code),
        done => done,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_sendsig(tid: c_int, number: c_int) -> c_int {
    traced_code(Event::Sendsig, |_| ints(&[tid, number]), || send_signal(tid, number))
}

/// Prints a failure twice, as 3.4.6 does: in 3.4.6 one public function calls another, and each of them prints the
/// failure.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_kill(tid: c_int) -> c_int {
    traced_code(
        Event::Kill,
        |_| ints(&[tid]),
        || match send_signal(tid, libc::SIGTERM) {
            code @ ..0 => lpvm_error(b"pvm_kill", code),
            done => done,
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_pstat(tid: c_int) -> c_int {
    traced_code(
        Event::Pstat,
        |_| ints(&[tid]),
        || {
            call_quiet("pvm_pstat", &[Code::NoTask], |guard| {
                guard.enrolled()?;
                let tid = task_tid(tid)?;
                match request(guard, Request::TaskStatus(tid))? {
                    Reply::Code(0) | Reply::Done => Ok(0),
                    Reply::Code(code) => Err(crate::errors::Failure(code)),
                    other => Ok(wrong_reply(other)?),
                }
            })
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_tasks(place: c_int, count: *mut c_int, list: *mut *mut CTaskInfo) -> c_int {
    let found = Cell::new(0);
    let after = |_: &mut Task, code| ints(&[code, found.get()]);
    traced(
        Event::Tasks,
        |_| ints(&[place]),
        || {
            call("pvm_tasks", |guard| {
                guard.state().lists.tasks = TaskList::default();
                // SAFETY: a place for the result or null, as the caller promises.
                unsafe { store(count, 0) };
                match request(guard, Request::Tasks(Tid(place as u32)))? {
                    Reply::Tasks(tasks) => {
                        let lists = &mut guard.state().lists;
                        lists.tasks = TaskList::new(tasks);
                        found.set(lists.tasks.len());
                        // SAFETY: places for the results or null, as the caller promises.
                        unsafe {
                            store(count, lists.tasks.len());
                            store(list, lists.tasks.as_mut_ptr());
                        }
                        Ok(0)
                    }
                    other => Ok(wrong_reply(other)?),
                }
            })
        },
        after,
    )
}

/// Returns the tids of the siblings of an enrolled task; asks the daemon the first time.
pub fn siblings(guard: &mut Guard) -> Result<&mut Vec<c_int>, Code> {
    if guard.state().lists.siblings.is_empty() {
        let Reply::Tids(tids) = request(guard, Request::Siblings)? else { return Err(Code::BadMsg) };
        guard.state().lists.siblings = tids;
    }
    Ok(&mut guard.state().lists.siblings)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_siblings(list: *mut *mut c_int) -> c_int {
    traced(
        Event::Siblings,
        nothing,
        || {
            call("pvm_siblings", |guard| {
                guard.enrolled()?;
                let siblings = siblings(guard)?;
                let count = siblings.len() as c_int;
                pvmnsibs.store(count, Relaxed);
                pvmsibtids.store(siblings.as_mut_ptr(), Relaxed);
                // SAFETY: a place for the result or null, as the caller promises.
                unsafe { store(list, siblings.as_mut_ptr()) };
                Ok(count)
            })
        },
        |_, _| {
            // SAFETY: the last call has set both.
            let tids = unsafe { items(pvmsibtids.load(Relaxed), pvmnsibs.load(Relaxed)) };
            vec![Value::Ints(tids.unwrap_or_default().to_vec())]
        },
    )
}

/// Returns the tids that are named in a request for notify messages.
///
/// # Safety
/// `tids` points to `count` tids, or is null.
unsafe fn named_tids<'a>(what: c_int, count: c_int, tids: *const c_int) -> Result<&'a [c_int], Code> {
    match what & !NOTIFY_CANCEL {
        // For these two kinds `count` is a number of messages, and the tids have no meaning.
        NOTIFY_HOST_ADD | NOTIFY_ROUTE_ADD => Ok(&[]),
        // SAFETY: as promised by the caller.
        _ => unsafe { items(tids, count) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_notify(what: c_int, tag: c_int, count: c_int, tids: *const c_int) -> c_int {
    traced_code(
        Event::Notify,
        |_| {
            // SAFETY: tids as the caller promises.
            let tids = unsafe { named_tids(what, count, tids) }.unwrap_or_default();
            vec![Value::Int(what), Value::Int(tag), Value::Ints(tids.to_vec())]
        },
        || {
            call("pvm_notify", |guard| {
                guard.enrolled()?;
                // SAFETY: tids as the caller promises.
                let tids = unsafe { named_tids(what, count, tids) }?;
                match guard.task().notify(what, tag, count, tids)? {
                    // As in 3.4.6, a handler can ask for notifies.
                    Some(notify) if guard.task().in_handler() => guard.task().send_request(notify)?,
                    Some(notify) => drop(request(guard, notify)?),
                    None => {}
                }
                guard.run_callbacks();
                Ok(0)
            })
        },
    )
}
