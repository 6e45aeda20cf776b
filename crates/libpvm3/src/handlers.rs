//! Contexts and message handlers (contract 2.4).
use crate::callbacks::{self, Handler};
use crate::data::pvmmyctx;
use crate::errors::{call, call_silent};
use crate::trace::{ints, nothing, traced_code};
use crate::wait::{request, wrong_reply};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::proto::{Reply, Request};
use std::ffi::{c_char, c_int};
use std::sync::atomic::Ordering::Relaxed;

#[unsafe(no_mangle)]
pub extern "C" fn pvm_addmhf(src: c_int, tag: c_int, ctx: c_int, handler: Option<Handler>) -> c_int {
    traced_code(
        Event::Addmhf,
        |_| ints(&[src, tag, ctx]),
        || {
            call("pvm_addmhf", |guard| {
                let handler = handler.ok_or(Code::BadParam)?;
                let id = guard.task().add_handler(src, tag, ctx, handler as usize as u64)?;
                guard.state().callbacks = Some(callbacks::run);
                guard.state().choose_path();
                Ok(id)
            })
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_delmhf(id: c_int) -> c_int {
    traced_code(
        Event::Delmhf,
        |_| ints(&[id]),
        || {
            call("pvm_delmhf", |guard| {
                guard.task().delete_handler(id)?;
                Ok(0)
            })
        },
    )
}

/// Prints the table of handlers, for debugging.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmdisplaymhfinfo(who: *const c_char, message: *const c_char, tid: c_int) {
    // SAFETY: strings as the caller promises.
    let (who, message) = unsafe { (crate::memory::bytes(who), crate::memory::bytes(message)) };
    let mut handlers = Vec::new();
    call_silent(|guard| {
        handlers = guard.task().handlers().collect();
        Ok(0)
    });
    let line = |text: &[u8]| [who.unwrap_or(b"(null)"), format!(" t{tid:x}: ").as_bytes(), text, b"\n"].concat();
    let mut text = line(format!("{} message handlers", handlers.len()).as_bytes());
    text.extend(line(message.unwrap_or(b"(null)")));
    for (id, src, tag, ctx) in handlers {
        text.extend(line(format!("handler {id:2}: src t{src:x} tag {tag} ctx {ctx}").as_bytes()));
    }
    crate::catchout::print_to_stdout(&text);
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_getcontext() -> c_int {
    traced_code(Event::Getcontext, nothing, || call("pvm_getcontext", |guard| Ok(guard.task().context())))
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_setcontext(ctx: c_int) -> c_int {
    traced_code(
        Event::Setcontext,
        |_| ints(&[ctx]),
        || {
            call("pvm_setcontext", |guard| {
                let previous = guard.task().set_context(ctx);
                pvmmyctx.store(ctx, Relaxed);
                Ok(previous)
            })
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_newcontext() -> c_int {
    traced_code(Event::Newcontext, nothing, || {
        call("pvm_newcontext", |guard| match request(guard, Request::NewContext)? {
            Reply::Int(ctx) => Ok(ctx),
            other => Ok(wrong_reply(other)?),
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_freecontext(ctx: c_int) -> c_int {
    traced_code(
        Event::Freecontext,
        |_| ints(&[ctx]),
        || {
            call("pvm_freecontext", |guard| {
                if ctx == 0 {
                    return Err(Code::BadParam.into());
                }
                request(guard, Request::FreeContext(ctx))?;
                Ok(0)
            })
        },
    )
}
