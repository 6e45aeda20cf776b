//! Sending (contract 2.2).
use crate::errors::{Outcome, call, call_silent, lpvm_error};
use crate::fast_path::{self, Attempt, FastGuard};
use crate::memory::items;
use crate::process::Guard;
use crate::trace::{address, ints, sending_bytes, traced_inline};
use crate::wait::{wait, wait_by};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::state_line::Call;
use pvm_core::tid::Tid;
use pvm_core::trace::Value;
use pvm_task::{Kind, Submit, Task, Waiter};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::slice;
use std::time::Duration;

/// Sends a message; waits if the daemon must first introduce the receiver.
#[inline(always)]
pub fn submit(guard: &mut Guard, mut send: impl FnMut(&mut Task) -> Result<Submit, Code>) -> Outcome {
    guard.enrolled()?;
    if guard.state().callbacks.is_some() {
        poll_before_send(guard);
    }
    if !guard.task().is_connected() {
        return Err(Code::SysErr.into());
    }
    match send(guard.task())? {
        Submit::Done => Ok(0),
        Submit::Again => Ok(submit_slow(guard, &mut send)?),
    }
}

/// Processes at most one message that has arrived, before a send: runs its handler, or prints the output of a child
/// task that it holds.
#[inline(never)]
fn poll_before_send(guard: &mut Guard) {
    guard.task().reveal_one();
    guard.run_callbacks();
}

/// Waits before a send for as long as `PvmBackoff` demands of this instance of a group (papers D4). Messages that arrive
/// meanwhile are taken in. A message handler does not wait, since the program waits for the handler.
#[cold]
#[inline(never)]
pub fn back_off(guard: &mut Guard, instance: Option<u32>) {
    let wait = instance.map_or(Duration::ZERO, |instance| guard.task().backoff(instance));
    if wait.is_zero() || guard.task().in_handler() {
        return;
    }
    wait_by(guard, Waiter::new(Call::Pause, Some(wait)), &mut |guard| {
        guard.progress();
        None::<()>
    });
}

/// Sends a message to one task, after the wait of `PvmBackoff`. The number in the wait is the instance in the group that
/// this task has joined last.
#[inline(always)]
fn submit_to(guard: &mut Guard, tid: c_int, send: impl FnMut(&mut Task) -> Result<Submit, Code>) -> Outcome {
    if guard.task().backs_off() && Tid(tid as u32).is_task() && guard.task().tid() != Some(Tid(tid as u32)) {
        let instance = guard.task().last_instance();
        back_off(guard, instance);
    }
    submit(guard, send)
}

#[cold]
fn submit_slow(guard: &mut Guard, send: &mut dyn FnMut(&mut Task) -> Result<Submit, Code>) -> Result<c_int, Code> {
    wait(guard, Call::Send, None, |guard| match send(guard.task()) {
        Ok(Submit::Again) => None,
        Ok(Submit::Done) => Some(Ok(0)),
        Err(code) => Some(Err(code)),
    })
    .unwrap_or(Err(Code::SysErr))
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_send(tid: c_int, tag: c_int) -> c_int {
    match fast_path::send(tid, tag) {
        Attempt::Done => 0,
        Attempt::Longer(guard) => send_longer(guard, tid, tag),
        Attempt::NotDone => send(tid, tag),
        Attempt::Wake => fast_path::wake("pvm_send", tid),
    }
}

/// Sends a message that is no immediate one. The stack that the attempt needs is free again before the call takes another
/// way.
#[inline(never)]
fn send_longer(guard: FastGuard, tid: c_int, tag: c_int) -> c_int {
    if fast_path::send_at_once(guard, tid, tag) { 0 } else { send(tid, tag) }
}

#[inline(never)]
fn send(tid: c_int, tag: c_int) -> c_int {
    traced_inline!(Event::Send, move |task| ints(&[sending_bytes(task), tid, tag, task.context()]), || call(
        "pvm_send",
        |guard| submit_to(guard, tid, |task| task.send(tid, tag))
    ),)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_mcast(tids: *const c_int, count: c_int, tag: c_int) -> c_int {
    traced_inline!(
        Event::Mcast,
        move |task| {
            // SAFETY: tids as the caller promises.
            let tids = unsafe { items(tids, count) }.unwrap_or_default().to_vec();
            let mut values = ints(&[sending_bytes(task), tag, task.context()]);
            values.push(Value::Ints(tids));
            values
        },
        || {
            call("pvm_mcast", |guard| {
                guard.enrolled()?;
                if count < 0 {
                    return Err(Code::BadParam.into());
                }
                // SAFETY: tids as the caller promises.
                let tids = unsafe { items(tids, count) }?;
                submit(guard, |task| task.multicast(tids, tag))
            })
        },
    )
}

/// Returns the size in bytes of `count` items of a data type. A negative count means zero.
pub fn bytes_of(count: c_int, data_type: c_int) -> Result<usize, Code> {
    const STRING: c_int = 0;
    match Kind::from_number(data_type) {
        Some(kind) => usize::try_from(count).unwrap_or(0).checked_mul(kind.size()).ok_or(Code::BadParam),
        None if data_type == STRING => Err(Code::NotImpl),
        None => Err(Code::BadParam),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_psend(
    tid: c_int,
    tag: c_int,
    data: *const c_void,
    count: c_int,
    data_type: c_int,
) -> c_int {
    // SAFETY: data as the caller promises.
    match unsafe { fast_path::psend(tid, tag, data, count, data_type) } {
        Attempt::Done => 0,
        // SAFETY: as the caller promises.
        Attempt::Longer(guard) => unsafe { psend_longer(guard, tid, tag, data, count, data_type) },
        Attempt::NotDone => psend(tid, tag, data, count, data_type),
        Attempt::Wake => fast_path::wake("pvm_psend", tid),
    }
}

/// As [`send_longer`].
///
/// # Safety
/// As the caller of `pvm_psend` promises.
#[inline(never)]
unsafe fn psend_longer(
    guard: FastGuard,
    tid: c_int,
    tag: c_int,
    data: *const c_void,
    count: c_int,
    data_type: c_int,
) -> c_int {
    // SAFETY: data as the caller promises.
    match unsafe { fast_path::psend_at_once(guard, (tid, tag), data, count, data_type) } {
        true => 0,
        false => psend(tid, tag, data, count, data_type),
    }
}

#[inline(never)]
fn psend(tid: c_int, tag: c_int, data: *const c_void, count: c_int, data_type: c_int) -> c_int {
    traced_inline!(
        Event::Psend,
        move |task| {
            let mut values = ints(&[tid, tag, task.context()]);
            values.extend([address(data), Value::Int(count), Value::Int(data_type)]);
            values
        },
        || {
            let bytes = match bytes_of(count, data_type) {
                Ok(bytes) if bytes == 0 || !data.is_null() => bytes,
                Ok(_) => return lpvm_error(b"pvm_psend", Code::BadParam.number()),
                Err(code) => return lpvm_error(b"pvm_psend", code.number()),
            };
            if count < 0 {
                lpvm_error(b"pvm_pkbyte", Code::BadParam.number()); // printed, and then treated as none
            }
            let data = if bytes == 0 { NonNull::dangling().as_ptr() } else { data.cast_mut().cast() };
            // SAFETY: data as the caller promises.
            let body = unsafe { slice::from_raw_parts(data, bytes) };
            match call_silent(|guard| submit_to(guard, tid, |task| task.psend(tid, tag, body))) {
                code @ ..0 => psend_failed(code),
                done => done,
            }
        },
    )
}

/// Prints the failure. `PvmBadParam` is printed twice, as in 3.4.6: there `pvm_psend` calls `pvm_send`, and each of
/// them prints this failure.
#[cold]
fn psend_failed(code: c_int) -> c_int {
    if code == Code::BadParam.number() {
        lpvm_error(b"pvm_send", code);
    }
    lpvm_error(b"pvm_psend", code)
}
