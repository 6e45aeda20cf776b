//! Options (contract 2.9) and trace masks.
use crate::data::{self, MASK_BYTES};
use crate::errors::{Failure, Outcome, call};
use crate::mailbox::{enter_no_reset, leave_no_reset};
use crate::memory::bytes;
use crate::process::Guard;
use crate::trace::{ints, traced, traced_code};
use crate::wait::request;
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::proto::Request;
use pvm_core::tid::Tid;
use pvm_task::OptionNumber;
use std::ffi::{c_char, c_int};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

/// The values of the argument `who` of `pvm_settmask`: the mask of this task, and the mask of its children.
const TASK_SELF: c_int = 0;
const TASK_CHILD: c_int = 1;

/// Returns the data symbol in which an option is stored, for options that programs may also set by writing the symbol.
fn symbol(what: c_int) -> Option<&'static AtomicI32> {
    const AUTO_ERROR: c_int = OptionNumber::AutoErr as c_int;
    const SHOW_TIDS: c_int = OptionNumber::ShowTids as c_int;
    const DEBUG_MASK: c_int = OptionNumber::DebugMask as c_int;
    match what {
        AUTO_ERROR => Some(&data::pvmautoerr),
        SHOW_TIDS => Some(&data::pvmshowtaskid),
        DEBUG_MASK => Some(&data::pvmdebmask),
        _ => None,
    }
}

/// Returns the data symbol that holds a copy of an option, for programs that read it.
fn shown(what: c_int) -> Option<&'static AtomicI32> {
    const ROUTE: c_int = OptionNumber::Route as c_int;
    const FRAGMENT: c_int = OptionNumber::FragSize as c_int;
    const RESERVED: c_int = OptionNumber::ResvTids as c_int;
    match what {
        ROUTE => Some(&data::pvmrouteopt),
        FRAGMENT => Some(&data::pvmfrgsiz),
        RESERVED => Some(&data::pvmrescode),
        _ => None,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_setopt(what: c_int, value: c_int) -> c_int {
    traced_code(
        Event::Setopt,
        |_| ints(&[what, value]),
        || {
            call("pvm_setopt", |guard| {
                if what == OptionNumber::NoReset as c_int {
                    return set_no_reset(guard, value != 0);
                }
                if needs_enrollment(what) {
                    guard.enrolled()?;
                }
                let previous = guard.task().set_option(what, value)?;
                if what == OptionNumber::GroupHost as c_int {
                    name_group_host(guard, value, previous)?;
                }
                guard.state().choose_path();
                if let Some(symbol) = shown(what) {
                    symbol.store(value, Relaxed);
                }
                guard.publish_settings();
                Ok(symbol(what).map_or(previous, |symbol| symbol.swap(value, Relaxed)))
            })
        },
    )
}

/// Tells the master at which host barriers of this task's groups shall meet; restores the option if the master refuses.
fn name_group_host(guard: &mut Guard, host: c_int, previous: c_int) -> Result<(), Code> {
    let answer = request(guard, Request::SetGroupHost(Tid(host as u32)));
    if answer.is_err() {
        guard.task().set_option(OptionNumber::GroupHost as c_int, previous)?;
    }
    answer.map(drop)
}

/// Returns whether an option sets the receiver of output or traces, or the place of barriers: such options need the
/// daemon.
fn needs_enrollment(what: c_int) -> bool {
    const FIRST: c_int = OptionNumber::OutputTid as c_int;
    const LAST: c_int = OptionNumber::TraceOptions as c_int;
    const SELF_FIRST: c_int = OptionNumber::SelfOutputTid as c_int;
    const SELF_LAST: c_int = OptionNumber::SelfTraceOptions as c_int;
    const CONTEXT_FIRST: c_int = OptionNumber::OutputContext as c_int;
    const CONTEXT_LAST: c_int = OptionNumber::SelfTraceContext as c_int;
    const GROUP_HOST: c_int = OptionNumber::GroupHost as c_int;
    matches!(what, GROUP_HOST | FIRST..=LAST | SELF_FIRST..=SELF_LAST | CONTEXT_FIRST..=CONTEXT_LAST)
}

fn set_no_reset(guard: &mut Guard, on: bool) -> Outcome {
    let previous = guard.task().no_reset();
    let index = match (on, previous) {
        (true, None) => Some(enter_no_reset(guard).map_err(|_| Failure::from(Code::BadParam))?),
        (false, Some(index)) => {
            leave_no_reset(guard, index)?;
            None
        }
        (_, unchanged) => unchanged,
    };
    guard.task().set_no_reset(index);
    data::pvmnoreset.store(c_int::from(on), Relaxed);
    data::pvmnoresetindex.store(index.unwrap_or(-1), Relaxed);
    Ok(c_int::from(previous.is_some()))
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_getopt(what: c_int) -> c_int {
    traced(
        Event::Getopt,
        |_| ints(&[what]),
        || {
            call("pvm_getopt", |guard| {
                let value = guard.task().option(what)?;
                Ok(symbol(what).map_or(value, |symbol| symbol.load(Relaxed)))
            })
        },
        |_, code| ints(&[code.max(0)]),
    )
}

/// Returns whether `who` means the mask of the children.
fn of_children(who: c_int) -> Result<bool, Code> {
    match who {
        TASK_SELF => Ok(false),
        TASK_CHILD => Ok(true),
        _ => Err(Code::BadParam),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_settmask(who: c_int, mask: *const c_char) -> c_int {
    call("pvm_settmask", |guard| {
        let children = of_children(who)?;
        // SAFETY: a mask, which is a C string, as the caller promises.
        let mask = unsafe { bytes(mask) }.ok_or(Code::BadParam)?;
        guard.task().set_trace_mask(children, data::mask_characters(mask))?;
        guard.publish_settings();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_gettmask(who: c_int, mask: *mut [u8; MASK_BYTES]) -> c_int {
    call("pvm_gettmask", |guard| {
        let settings = match of_children(who)? {
            true => guard.task().child_settings(),
            false => guard.task().own_settings(),
        };
        // SAFETY: a mask in its full length, as the caller promises, or null.
        unsafe { crate::memory::store(mask, data::mask(&settings.mask)) };
        Ok(0)
    })
}
