//! `pvm_getfds`: something that a program can wait for beside its own descriptors.
//!
//! News come through the daemon's socket and through the doorbell of the shared memory. Programs
//! written for PVM 3.4 know one descriptor, so one stands for both. While a program holds it, the
//! task is left as if it slept whenever a call returns: senders ring.
use crate::errors::call;
use crate::memory::{items, store};
use crate::process::Guard;
use crate::trace::{nothing, traced};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::trace::Value;
use pvm_fmp::descriptor::above_standard;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The descriptor that a program watches.
pub struct Watch(OwnedFd);

impl Watch {
    /// Watches these.
    fn new(watched: &[impl AsRawFd]) -> Option<Watch> {
        // SAFETY: has no preconditions.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return None;
        }
        // SAFETY: made just now, owned by nobody else.
        let descriptor = above_standard(unsafe { OwnedFd::from_raw_fd(descriptor) }).ok()?;
        for one in watched {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            let add = libc::EPOLL_CTL_ADD;
            // SAFETY: three valid arguments; the event is copied.
            if unsafe { libc::epoll_ctl(descriptor.as_raw_fd(), add, one.as_raw_fd(), &mut event) } < 0 {
                return None;
            }
        }
        Some(Watch(descriptor))
    }
}

/// Before control returns to a program that watches.
#[cold]
pub fn arm(guard: &mut Guard) {
    if guard.task().is_enrolled() {
        guard.task().arm();
    }
}

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
                if guard.state().watched.is_none() {
                    let watched = guard.task().descriptors().ok_or(Code::SysErr)?;
                    guard.state().watched = Some(Watch::new(&watched).ok_or(Code::OutOfRes)?);
                }
                let state = guard.state();
                state.lists.descriptors = state.watched.iter().map(|watch| watch.0.as_raw_fd()).collect();
                // SAFETY: the place that the caller gave for it.
                unsafe { store(list, state.lists.descriptors.as_mut_ptr()) };
                Ok(1)
            })
        },
        |_, code| {
            // SAFETY: the call has stored there where so many descriptors are.
            let list = if code > 0 { unsafe { items(*list, code) }.unwrap_or_default() } else { &[] };
            vec![Value::Int(code), Value::Ints(list.to_vec())]
        },
    )
}
