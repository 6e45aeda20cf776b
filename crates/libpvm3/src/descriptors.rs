//! `pvm_getfds`: a descriptor that a program can poll together with its own descriptors.
//!
//! Messages arrive through the daemon's socket, through shared memory with a doorbell, and on direct links. Programs
//! written for PVM 3.4 expect one descriptor, so they get an epoll descriptor that watches the socket, the doorbell and
//! the direct links. Once a program has requested this descriptor, each call of the library marks the task as parked
//! before the call returns. Senders then ring the doorbell, and the epoll descriptor becomes readable.
use crate::errors::call;
use crate::memory::{items, store};
use crate::process::Watch;
use crate::trace::{nothing, traced};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::trace::Value;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_getfds(list: *mut *mut c_int) -> c_int {
    traced(
        Event::Getfds,
        nothing,
        || {
            call("pvm_getfds", |guard| {
                if list.is_null() {
                    return Err(Code::BadParam.into());
                }
                guard.enrolled()?;
                let is_closed = guard.state().watched.as_ref().is_some_and(|watch| !watch.0.is_open());
                if is_closed || guard.state().watched.is_none() {
                    let watched = guard.task().descriptors().ok_or(Code::SysErr)?;
                    guard.state().watched = Some(Watch::new(&watched).ok_or(Code::OutOfRes)?);
                    guard.state().choose_path();
                }
                let state = guard.state();
                state.lists.descriptors = state.watched.iter().map(|watch| watch.0.as_fd().as_raw_fd()).collect();
                // SAFETY: a place for the result, as the caller promises.
                unsafe { store(list, state.lists.descriptors.as_mut_ptr()) };
                Ok(1)
            })
        },
        |_, code| {
            // SAFETY: the call has stored there a pointer to `code` descriptors.
            let list = if code > 0 { unsafe { items(*list, code) }.unwrap_or_default() } else { &[] };
            vec![Value::Int(code), Value::Ints(list.to_vec())]
        },
    )
}
