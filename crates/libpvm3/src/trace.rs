//! Traces the calls of a program if there is a collector (contract 2.12).
//!
//! A call that can be traced goes through [`traced`]. While nothing is traced, this costs one load of [`MODE`].
//! Otherwise [`traced`] makes one record before the call and one after it, each under the lock; the code of the call
//! itself has nothing to do with tracing.
use crate::process::{Guard, enter, postponed};
use crate::trace_mode::{MODE, OFF, ON, UNKNOWN};
use crate::wait::wait;
use pvm_core::events::Event;
use pvm_core::state_line::Call;
use pvm_core::trace::{Moment, Stamp, Value};
use pvm_task::trace::stamp;
use pvm_task::{HandlerCall, Submit, Task};
use std::ffi::{c_int, c_long};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The values of a record, in the order in which the event's entry in `EVENTS` lists its data.
pub type Values = Vec<Value>;

/// Runs a call. If it is traced, `before` and `after` return the values for the two records.
#[inline(always)]
pub fn traced(
    event: Event,
    before: impl FnOnce(&mut Task) -> Values,
    body: impl FnOnce() -> c_int,
    after: impl FnOnce(&mut Task, c_int) -> Values,
) -> c_int {
    match MODE.load(Relaxed) {
        OFF => body(),
        _ => traced_slow(event, before, body, after),
    }
}

/// Does what [`traced`] does, for calls whose second record contains only the result.
#[inline(always)]
pub fn traced_code(event: Event, before: impl FnOnce(&mut Task) -> Values, body: impl FnOnce() -> c_int) -> c_int {
    traced(event, before, body, |_, code| vec![Value::Int(code)])
}

/// Does what [`traced`] does, for calls where nanoseconds count: expands the body in place twice, for untraced and for
/// traced calls. So an untraced call need not store its variables in memory for a closure.
macro_rules! traced_inline {
    ($event:expr, $before:expr, || $body:expr $(,)?) => {
        $crate::trace::traced_inline!($event, $before, || $body, |_, code| vec![Value::Int(code)])
    };
    ($event:expr, $before:expr, || $body:expr, $after:expr $(,)?) => {
        if $crate::trace_mode::may_be_on() {
            $crate::trace::traced_slow($event, $before, move || $body, $after)
        } else {
            $body
        }
    };
}
pub(crate) use traced_inline;

#[cold]
#[inline(never)]
pub fn traced_slow(
    event: Event,
    before: impl FnOnce(&mut Task) -> Values,
    body: impl FnOnce() -> c_int,
    after: impl FnOnce(&mut Task, c_int) -> Values,
) -> c_int {
    let (at, since) = (stamp(), Instant::now());
    let left = begin(event, at, before);
    let code = body();
    let Some(mut guard) = enter() else { return code };
    if !guard.task().traces_event(event) {
        return code;
    }
    if let Some(before) = left {
        // The body has enrolled the process, so the settings are known only now.
        let values = before(guard.task());
        guard.task().trace(event, Moment::Entry, at, None, values);
    }
    let values = after(guard.task(), code);
    guard.task().trace(event, Moment::Exit, stamp(), Some(since), values);
    send(&mut guard);
    code
}

/// Makes the first record of a call, if the call is traced. Returns `before` if it is not known yet whether the call is
/// traced.
fn begin<F: FnOnce(&mut Task) -> Values>(event: Event, at: Stamp, before: F) -> Option<F> {
    let mut guard = enter()?;
    find_out(&mut guard);
    if MODE.load(Relaxed) == UNKNOWN {
        return Some(before);
    }
    if guard.task().traces_event(event) {
        let values = before(guard.task());
        guard.task().trace(event, Moment::Entry, at, None, values);
        send(&mut guard);
    }
    None
}

/// Finds out whether anything is traced. For that, a process that was spawned with a trace mask enrolls.
fn find_out(guard: &mut Guard) {
    if MODE.load(Relaxed) != UNKNOWN {
        return;
    }
    postponed::send(guard);
    if guard.task().is_enrolled() || guard.spawned_to_trace() && guard.enroll_silently() {
        guard.publish_settings();
    }
}

/// Sends the records that are ready, and waits until they have been sent. Message handlers may run during the wait; the
/// records that this produces are sent too.
fn send(guard: &mut Guard) {
    if std::mem::replace(&mut guard.state().sending_traces, true) {
        return;
    }
    if guard.task().send_traces() == Submit::Again {
        // Without a daemon the records are dropped, so this wait ends.
        wait(guard, Call::Send, None, |guard| (guard.task().send_traces() == Submit::Done).then_some(()));
    }
    guard.state().sending_traces = false;
}

/// Traces the call of a message handler.
pub fn handler_runs(guard: &mut Guard, call: &HandlerCall) {
    if MODE.load(Relaxed) != ON || !guard.task().traces_event(Event::MhfInvoke) {
        return;
    }
    let task = guard.task();
    let filter = task.handlers().find(|(id, ..)| *id == call.handler);
    let Some((_, src, tag, ctx)) = filter else { return };
    let mut values = ints(&[src, tag, ctx]);
    values.extend(message(task, call.mid));
    task.trace(Event::MhfInvoke, Moment::Entry, stamp(), None, values);
    send(guard);
}

/// Sends all traces before the task leaves the machine.
pub fn finish(guard: &mut Guard) {
    if MODE.load(Relaxed) != ON {
        return;
    }
    guard.task().finish_traces();
    send(guard);
}

// ----- values

/// Returns numbers as values.
pub fn ints(values: &[c_int]) -> Values {
    values.iter().map(|value| Value::Int(*value)).collect()
}

/// Returns no values.
pub fn nothing(_: &mut Task) -> Values {
    Vec::new()
}

/// Returns a text as a value; an empty value if there is no text.
pub fn text(text: Option<&[u8]>) -> Value {
    Value::Text(text.unwrap_or_default().to_vec())
}

/// Returns texts as a value.
pub fn texts(texts: &[&[u8]]) -> Value {
    Value::Texts(texts.iter().map(|text| text.to_vec()).collect())
}

/// Returns an address as a value.
pub fn address<T>(address: *const T) -> Value {
    #[allow(clippy::unnecessary_cast)] // has 32 bits on some machines
    Value::Long(address as c_long as i64)
}

/// Returns the traced values of a message: buffer, length, tag, context, sender.
pub fn message(task: &Task, mid: c_int) -> Values {
    const NONE: c_int = -1;
    match task.message_info(mid) {
        Ok(info) => ints(&[mid, info.len, info.tag, info.ctx, info.src]),
        Err(_) => ints(&[mid, NONE, NONE, 0, NONE]),
    }
}

/// Returns the length of the active send buffer in bytes.
pub fn sending_bytes(task: &Task) -> c_int {
    task.message_info(task.send_buffer()).map_or(0, |info| info.len)
}
