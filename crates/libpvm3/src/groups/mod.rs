//! Groups (contract 2.11).
pub mod collective;
pub mod operators;
mod server;

use crate::data::pvm_errno;
use crate::errors::{Outcome, call_silent, lpvm_error};
use crate::memory::bytes;
use crate::process::Guard;
use crate::send::submit;
use crate::trace::{text, traced, traced_code, traced_inline};
use crate::wait::{request, wait, wait_by, wrong_reply};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::proto::{ByteBuf, Reply, Request};
use pvm_core::trace::Value;
use pvm_task::{BarrierArrival, Group, Task, Waiter};
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::Ordering::Relaxed;

/// Returns the name of a group, which must not be empty.
///
/// # Safety
/// As [`bytes`].
unsafe fn name_of<'a>(group: *const c_char) -> Result<&'a [u8], Code> {
    // SAFETY: as promised by the caller.
    unsafe { bytes(group) }.filter(|name| !name.is_empty()).ok_or(Code::NullGroup)
}

/// Returns the name of a group as a traced value.
///
/// # Safety
/// As [`bytes`].
unsafe fn traced_name(group: *const c_char) -> Value {
    // SAFETY: as promised by the caller.
    text(unsafe { bytes(group) })
}

/// Runs one call under the lock. A failure sets `pvm_errno` but is not printed.
///
/// # Safety
/// As [`name_of`].
#[inline(always)]
unsafe fn group_call(group: *const c_char, body: impl FnOnce(&mut Guard, &[u8]) -> Outcome) -> c_int {
    // SAFETY: as promised by the caller.
    let code = match unsafe { name_of(group) } {
        Ok(name) => call_silent(|guard| {
            guard.enrolled()?;
            body(guard, name)
        }),
        Err(code) => code.number(),
    };
    if code < 0 {
        pvm_errno.store(code, Relaxed);
    }
    code
}

/// Returns the group of that name; if the group is not cached, asks the daemon for it.
#[inline]
fn find(guard: &mut Guard, name: &[u8]) -> Result<Group, Code> {
    if !guard.task().is_connected() {
        return Err(Code::SysErr);
    }
    run_handlers(guard);
    match guard.task().group(name) {
        Some(group) => Ok(group),
        None => match ask(guard, name, Request::Group(ByteBuf::from(name))) {
            Err(Code::NoGroup) => guard.task().former_group(name).ok_or(Code::NoGroup),
            answer => answer,
        },
    }
}

/// Runs the handlers of messages that wait. On PVM, calls of groups ask the group server, and handlers run while they
/// wait for its answer.
#[inline]
fn run_handlers(guard: &mut Guard) {
    if guard.state().callbacks.is_some() {
        guard.progress();
    }
}

/// Does what [`find`] does, for calls that PVM answers from its own list of a frozen group, without the server.
#[inline]
fn find_kept(guard: &mut Guard, name: &[u8]) -> Result<Group, Code> {
    if guard.state().callbacks.is_some() && guard.task().is_connected() {
        if let Some(group) = guard.task().group(name).filter(Group::is_kept) {
            return Ok(group);
        }
    }
    find(guard, name)
}

/// Looks a member up in a group. On PVM, the server is asked for a member that is not in the list of a frozen group.
#[inline]
fn look_up(guard: &mut Guard, name: &[u8], answer: impl Fn(&Group) -> Result<c_int, Code>) -> Outcome {
    let group = find_kept(guard, name)?;
    let found = answer(&group);
    if found.is_err() && group.is_kept() {
        run_handlers(guard);
    }
    Ok(found?)
}

#[cold]
fn ask(guard: &mut Guard, name: &[u8], question: Request) -> Result<Group, Code> {
    let reply = request(guard, question)?;
    guard.task().enter_group(name, reply)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_joingroup(group: *const c_char) -> c_int {
    // SAFETY: as promised by the caller.
    let before = |_: &mut Task| vec![unsafe { traced_name(group) }];
    traced_code(Event::Joingroup, before, || {
        let join = |guard: &mut Guard, name: &[u8]| {
            let reply = request(guard, Request::JoinGroup(ByteBuf::from(name)))?;
            match guard.task().enter_group(name, reply) {
                Ok(group) => {
                    guard.task().joined_group(&group);
                    Ok(group.instance()?)
                }
                Err(code) => {
                    request(guard, Request::LeaveGroup(ByteBuf::from(name)))?;
                    Err(code.into())
                }
            }
        };
        // SAFETY: as promised by the caller.
        unsafe { group_call(group, join) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_lvgroup(group: *const c_char) -> c_int {
    // SAFETY: as promised by the caller.
    let before = |_: &mut Task| vec![unsafe { traced_name(group) }];
    traced_code(Event::Lvgroup, before, || {
        let leave = |guard: &mut Guard, name: &[u8]| {
            request(guard, Request::LeaveGroup(ByteBuf::from(name)))?;
            guard.task().left_group(name);
            Ok(0)
        };
        // SAFETY: as promised by the caller.
        unsafe { group_call(group, leave) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_gsize(group: *const c_char) -> c_int {
    // SAFETY: as promised by the caller.
    let before = |_: &mut Task| vec![unsafe { traced_name(group) }];
    traced_code(Event::Gsize, before, || {
        // SAFETY: as promised by the caller.
        unsafe { group_call(group, |guard, name| Ok(find_kept(guard, name)?.size())) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_gettid(group: *const c_char, instance: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    let before = |_: &mut Task| vec![unsafe { traced_name(group) }, Value::Int(instance)];
    traced_code(Event::Gettid, before, || {
        // SAFETY: as promised by the caller.
        unsafe { group_call(group, |guard, name| look_up(guard, name, |group| group.tid_of(instance))) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getinst(group: *const c_char, tid: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    let before = |_: &mut Task| vec![unsafe { traced_name(group) }, Value::Int(tid)];
    traced_code(Event::Getinst, before, || {
        // SAFETY: as promised by the caller.
        unsafe { group_call(group, |guard, name| look_up(guard, name, |group| group.instance_of(tid))) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_barrier(group: *const c_char, count: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    let before = move |_: &mut Task| vec![unsafe { traced_name(group) }, Value::Int(count)];
    traced_inline!(Event::Barrier, before, || {
        // SAFETY: as promised by the caller.
        unsafe { group_call(group, |guard, name| barrier(guard, name, |task, group| task.begin_barrier(group, count))) }
    })
}

/// Like [`pvm_barrier`], but asks for a release by broadcast (D1).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_lanbarr(group: *const c_char, count: c_int) -> c_int {
    let arrive = |task: &mut Task, group: &Group| task.begin_lan_barrier(group, count);
    // SAFETY: as promised by the caller.
    unsafe { group_call(group, |guard, name| barrier(guard, name, arrive)) }
}

#[inline]
fn barrier(
    guard: &mut Guard,
    name: &[u8],
    arrive: impl FnOnce(&mut Task, &Group) -> Result<BarrierArrival, Code>,
) -> Outcome {
    let group = find(guard, name)?;
    let barrier = arrive(guard.task(), &group)?;
    let result = match guard.task().poll_barrier(&barrier) {
        Some(result) => result,
        None => wait_at_barrier(guard, &barrier),
    };
    guard.task().end_barrier(barrier);
    guard.task().note_synchronized();
    Ok(result.map(|()| 0)?)
}

/// How many times the barrier is polled for each poll for messages, because a poll for messages takes longer.
const POLLS_PER_PROGRESS: u32 = 16;

/// Waits at a barrier.
fn wait_at_barrier(guard: &mut Guard, barrier: &BarrierArrival) -> Result<(), Code> {
    let mut polls = 0;
    let hears = guard.task().hears_release(barrier);
    let call = barrier.call();
    let passed = match barrier.is_through_daemon() {
        true if hears => wait_by(guard, Waiter::asleep(call, None), &mut |guard| {
            guard.progress();
            guard.task().poll_barrier(barrier)
        }),
        true => wait(guard, call, None, |guard| guard.task().poll_barrier(barrier)),
        false => wait_by(guard, Waiter::for_members(call, None), &mut |guard| {
            let result = guard.task().poll_barrier(barrier);
            polls = (polls + 1) % POLLS_PER_PROGRESS;
            if result.is_none() && (polls == 0 || guard.task().is_about_to_sleep()) {
                guard.progress();
            }
            result
        }),
    };
    passed.unwrap_or(Err(Code::SysErr))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_bcast(group: *const c_char, tag: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    let before = |_: &mut Task| vec![unsafe { traced_name(group) }, Value::Int(tag)];
    let receivers = RefCell::new(Vec::new());
    let after = |_: &mut Task, code| vec![Value::Int(code), Value::Ints(receivers.take())];
    // SAFETY: as promised by the caller.
    traced(Event::Bcast, before, || unsafe { broadcast(group, tag, &receivers) }, after)
}

/// Sends to all other members; stores their tids in `sent_to`.
///
/// # Safety
/// As [`name_of`].
#[inline(always)]
unsafe fn broadcast(group: *const c_char, tag: c_int, sent_to: &RefCell<Vec<c_int>>) -> c_int {
    let mut receivers = None;
    let list = |guard: &mut Guard, name: &[u8]| {
        let group = find_kept(guard, name)?;
        receivers = Some(guard.task().group_receivers(&group)?);
        Ok(0)
    };
    // SAFETY: as promised by the caller.
    let found = unsafe { group_call(group, list) };
    let Some(receivers) = receivers else { return found };
    sent_to.replace(receivers);
    let receivers = sent_to.borrow();
    // In 3.4.6 this send is a public call, `pvm_mcast`, which prints its own failure.
    match call_silent(|guard| submit(guard, |task| task.multicast(&receivers, tag))) {
        code @ ..0 => lpvm_error(b"pvm_mcast", code),
        done => done,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_freezegroup(group: *const c_char, count: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    let name = match unsafe { name_of(group) } {
        Ok(name) => name,
        Err(code) => return code.number(),
    };
    // A failure does not even set `pvm_errno`.
    call_silent(|guard| match request(guard, Request::FreezeGroup { name: ByteBuf::from(name), count })? {
        Reply::Int(size) => {
            guard.task().froze_group(name);
            Ok(size)
        }
        other => Ok(wrong_reply(other)?),
    })
}
