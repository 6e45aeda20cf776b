//! Registration of a task as a server of the machine: hoster, tasker, resource manager or tracer (contract 2.12).
use crate::errors::{Outcome, call};
use crate::lists::{CHostInfo, HostList};
use crate::mailbox::put_body;
use crate::memory::{bytes, store};
use crate::process::{Guard, Registered};
use crate::trace::{ints, nothing, text, traced_code};
use crate::wait::{request, wrong_reply};
use pvm_core::codes::CLASS_TRACER;
use pvm_core::encoding::Writer;
use pvm_core::events::Event;
use pvm_core::proto::{ByteBuf, Reply, Request, Role, TraceSettings};
use pvm_core::trace::Value;
use std::ffi::{c_char, c_int};

fn toggle(
    guard: &mut Guard,
    role: Role,
    which: fn(&mut Registered) -> &mut bool,
) -> Result<bool, crate::errors::Failure> {
    let on = !*which(&mut guard.state().registered);
    request(guard, Request::Register { role, on })?;
    *which(&mut guard.state().registered) = on;
    Ok(on)
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_reg_hoster() -> c_int {
    traced_code(Event::RegHoster, nothing, || {
        call("pvm_reg_hoster", |guard| toggle(guard, Role::Hoster, |registered| &mut registered.hoster).map(|_| 0))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_reg_tasker() -> c_int {
    traced_code(Event::RegTasker, nothing, || {
        call("pvm_reg_tasker", |guard| toggle(guard, Role::Tasker, |registered| &mut registered.tasker).map(|_| 0))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_reg_rm(list: *mut *mut CHostInfo) -> c_int {
    traced_code(Event::RegRm, nothing, || {
        call("pvm_reg_rm", |guard| {
            match request(guard, Request::Register { role: Role::ResourceManager, on: true })? {
                Reply::Manager { previous, hosts } => {
                    let lists = &mut guard.state().lists;
                    lists.manager_hosts = HostList::new(hosts);
                    // SAFETY: a place for the result or null, as the caller promises.
                    unsafe { store(list, lists.manager_hosts.as_mut_ptr()) };
                    Ok(previous.0 as c_int)
                }
                other => Ok(wrong_reply(other)?),
            }
        })
    })
}

/// The trace and output settings that a tracer requests for every task.
struct TraceWish<'a> {
    trace: (c_int, c_int),
    output: (c_int, c_int),
    mask: &'a [u8],
    buffer: c_int,
    options: c_int,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_reg_tracer(
    trace_context: c_int,
    trace_tag: c_int,
    output_context: c_int,
    output_tag: c_int,
    mask: *const c_char,
    buffer: c_int,
    options: c_int,
) -> c_int {
    traced_code(
        Event::RegTracer,
        |_| {
            // SAFETY: a mask, which is a C string, as the caller promises, or null.
            let mask = text(unsafe { bytes(mask) });
            let mut values = ints(&[trace_context, trace_tag, output_context, output_tag]);
            values.extend([mask, Value::Int(buffer), Value::Int(options)]);
            values
        },
        || {
            call("pvm_reg_tracer", |guard| {
                // SAFETY: a mask, which is a C string, as the caller promises.
                let mask = unsafe { bytes(mask) }.unwrap_or_default();
                let (trace, output) = ((trace_context, trace_tag), (output_context, output_tag));
                register_tracer(guard, &TraceWish { trace, output, mask, buffer, options })
            })
        },
    )
}

fn register_tracer(guard: &mut Guard, wish: &TraceWish<'_>) -> Outcome {
    if !toggle(guard, Role::Tracer, |registered| &mut registered.tracer)? {
        return Ok(0);
    }
    let tid = guard.task().tid().map_or(0, |tid| tid.0 as c_int);
    let body = Writer::new().int(tid).int(wish.trace.0).int(wish.trace.1).int(wish.output.0).int(wish.output.1);
    let body = body.string(wish.mask).int(wish.buffer).int(wish.options);
    put_body(guard, CLASS_TRACER.as_bytes(), 0, body.finish())?;
    let settings = TraceSettings {
        trace_tid: tid,
        trace_ctx: wish.trace.0,
        trace_tag: wish.trace.1,
        output_tid: tid,
        output_ctx: wish.output.0,
        output_tag: wish.output.1,
        trace_buffer: wish.buffer,
        trace_options: wish.options,
        mask: ByteBuf::from(crate::data::mask_characters(wish.mask)),
        ..TraceSettings::default()
    };
    request(guard, Request::SetTracer(settings))?;
    Ok(0)
}
