//! The machine and its hosts (contract 2.7).
use crate::errors::{Failure, Outcome, call, call_quiet, note_if_all_failed};
use crate::lists::{CHostInfo, HostList};
use crate::memory::bytes;
use crate::memory::{items, required_bytes, store, store_all, strings};
use crate::misc::now;
use crate::process::Guard;
use crate::trace::{ints, nothing, text, texts, traced, traced_code};
use crate::wait::{request, wait, wrong_reply};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::proto::{ByteBuf, Host, Reply, Request};
use pvm_core::state_line::Call;
use pvm_core::tid::Tid;
use pvm_core::trace::Value;
use pvm_task::Task;
use std::cell::Cell;
use std::ffi::{c_char, c_int};

/// The most hosts that one call can add.
const HOSTS_MAX: c_int = 4095;
/// The most arguments of `pvm_tickle`.
const TICKLE_ARGUMENTS_MAX: c_int = 10;
const MICROSECONDS: i64 = 1_000_000;

fn configuration(guard: &mut Guard) -> Result<(Vec<Host>, c_int), Code> {
    match request(guard, Request::Config)? {
        Reply::Hosts { hosts, formats } => Ok((hosts, formats)),
        other => wrong_reply(other),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_config(hosts: *mut c_int, formats: *mut c_int, list: *mut *mut CHostInfo) -> c_int {
    let counts = Cell::new((0, 0));
    let after = |_: &mut Task, code| ints(&[counts.get().0, counts.get().1, code]);
    traced(
        Event::Config,
        nothing,
        || {
            call("pvm_config", |guard| {
                guard.state().lists.hosts = HostList::default();
                let (found, count) = configuration(guard)?;
                let lists = &mut guard.state().lists;
                lists.hosts = HostList::new(found);
                counts.set((lists.hosts.len(), count));
                // SAFETY: places for the results or null, as the caller promises.
                unsafe {
                    store(hosts, lists.hosts.len());
                    store(formats, count);
                    store(list, lists.hosts.as_mut_ptr());
                }
                Ok(0)
            })
        },
        after,
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_addhosts(names: *const *const c_char, count: c_int, results: *mut c_int) -> c_int {
    traced_code(
        Event::Addhosts,
        |_| {
            // SAFETY: strings as the caller promises.
            vec![texts(&unsafe { strings(names, count) }.unwrap_or_default())]
        },
        || {
            call("pvm_addhosts", |guard| {
                // SAFETY: strings as the caller promises.
                let names = unsafe { host_names(guard, names, count) }?;
                match request(guard, Request::AddHosts(names))? {
                    Reply::AddedHosts { count: added, hosts, .. } => {
                        // SAFETY: room for `count` results, as the caller promises, or null.
                        unsafe { store_all(results, count, &hosts) };
                        note_if_all_failed(&hosts);
                        Ok(added)
                    }
                    other => Ok(wrong_reply(other)?),
                }
            })
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_delhosts(names: *const *const c_char, count: c_int, results: *mut c_int) -> c_int {
    traced_code(
        Event::Delhosts,
        |_| {
            // SAFETY: strings as the caller promises.
            vec![texts(&unsafe { strings(names, count) }.unwrap_or_default())]
        },
        || {
            call("pvm_delhosts", |guard| {
                // SAFETY: strings as the caller promises.
                let names = unsafe { host_names(guard, names, count) }?;
                match request(guard, Request::DeleteHosts(names))? {
                    Reply::Codes(codes) => {
                        // SAFETY: room for `count` results, as the caller promises, or null.
                        unsafe { store_all(results, count, &codes) };
                        note_if_all_failed(&codes);
                        Ok(codes.iter().filter(|&&code| code >= 0).count() as c_int)
                    }
                    other => Ok(wrong_reply(other)?),
                }
            })
        },
    )
}

/// Returns the names of at least one and at most [`HOSTS_MAX`] hosts.
///
/// # Safety
/// `names` are `count` C strings.
unsafe fn host_names(guard: &mut Guard, names: *const *const c_char, count: c_int) -> Result<Vec<ByteBuf>, Failure> {
    if !(1..=HOSTS_MAX).contains(&count) {
        return Err(Code::BadParam.into());
    }
    guard.enrolled()?;
    // SAFETY: as promised by the caller.
    let names = unsafe { strings(names, count) }?;
    Ok(names.into_iter().map(ByteBuf::from).collect())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_mstat(name: *const c_char) -> c_int {
    traced_code(
        Event::Mstat,
        |_| {
            // SAFETY: a string, as the caller promises, or null.
            vec![text(unsafe { bytes(name) })]
        },
        || {
            call_quiet("pvm_mstat", &[Code::NoHost, Code::HostFail], |guard| {
                // SAFETY: a string as the caller promises.
                let name = unsafe { required_bytes(name) }?;
                if name.is_empty() {
                    return Err(Code::BadParam.into());
                }
                match request(guard, Request::HostStatus(ByteBuf::from(name)))? {
                    Reply::Code(0) | Reply::Done => Ok(0),
                    Reply::Code(code) => Err(Failure(code)),
                    other => Ok(wrong_reply(other)?),
                }
            })
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_archcode(arch: *const c_char) -> c_int {
    traced_code(
        Event::Archcode,
        |_| {
            // SAFETY: a string, as the caller promises, or null.
            vec![text(unsafe { bytes(arch) })]
        },
        || {
            call("pvm_archcode", |guard| {
                // SAFETY: a string as the caller promises.
                let arch = unsafe { required_bytes(arch) }?;
                let (hosts, _) = configuration(guard)?;
                let host = hosts.into_iter().find(|host| host.arch.as_bytes() == arch);
                Ok(host.ok_or(Code::NotFound)?.dsig)
            })
        },
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_hostsync(host: c_int, clock: *mut libc::timeval, difference: *mut libc::timeval) -> c_int {
    // PVM 3.4.6 prints this name in its error messages.
    call("pvm_host_sync", |guard| {
        guard.enrolled()?;
        let before = microseconds(now());
        let Reply::Clock { seconds, microseconds: rest } = request(guard, Request::HostSync(Tid(host as u32)))? else {
            return Err(Code::BadMsg.into());
        };
        let here = (before + microseconds(now())) / 2;
        let there = seconds.saturating_mul(MICROSECONDS).saturating_add(rest.into());
        // SAFETY: places for the results or null, as the caller promises.
        unsafe {
            store(clock, time(there));
            store(difference, time(here.saturating_sub(there)));
        }
        Ok(0)
    })
}

#[allow(clippy::useless_conversion)] // a time has 32 bits on some machines
fn microseconds(time: libc::timeval) -> i64 {
    i64::from(time.tv_sec) * MICROSECONDS + i64::from(time.tv_usec)
}

/// Converts microseconds to a C time; only the seconds can be negative.
fn time(microseconds: i64) -> libc::timeval {
    libc::timeval {
        tv_sec: microseconds.div_euclid(MICROSECONDS) as libc::time_t,
        tv_usec: microseconds.rem_euclid(MICROSECONDS) as libc::suseconds_t,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_tickle(
    count: c_int,
    arguments: *const c_int,
    answers: *mut c_int,
    answer: *mut c_int,
) -> c_int {
    traced(
        Event::Tickle,
        |_| {
            // SAFETY: arguments as the caller promises.
            vec![Value::Ints(unsafe { items(arguments, count.min(TICKLE_ARGUMENTS_MAX)) }.unwrap_or_default().to_vec())]
        },
        || {
            call("pvm_tickle", |guard| {
                if !(1..=TICKLE_ARGUMENTS_MAX).contains(&count) {
                    return Err(Code::BadParam.into());
                }
                // SAFETY: arguments as the caller promises.
                let arguments = unsafe { items(arguments, count) }?.to_vec();
                match request(guard, Request::Tickle(arguments))? {
                    Reply::Ints(ints) => {
                        // SAFETY: places for the results or null, as the caller promises, with room for the most
                        // answers there can be.
                        unsafe {
                            store(answers, ints.len() as c_int);
                            store_all(answer, TICKLE_ARGUMENTS_MAX, &ints);
                        }
                        Ok(0)
                    }
                    other => Ok(wrong_reply(other)?),
                }
            })
        },
        |_, code| {
            // SAFETY: the call has stored the number of answers there, unless the pointer is null.
            let given = unsafe { answers.as_ref() }.filter(|_| code >= 0).map_or(0, |count| *count);
            // SAFETY: as above.
            let given = unsafe { items(answer, given) }.unwrap_or_default();
            vec![Value::Int(code), Value::Ints(given.to_vec())]
        },
    )
}

#[unsafe(no_mangle)]
pub extern "C" fn pvm_halt() -> c_int {
    traced_code(Event::Halt, nothing, || call("pvm_halt", halt))
}

/// Halts the machine. Each daemon sends SIGTERM to its tasks, the caller included. If the caller ignores the signal,
/// the call returns when the caller's daemon has ended.
fn halt(guard: &mut Guard) -> Outcome {
    guard.enrolled()?;
    let ticket = guard.task().begin(Request::Halt)?;
    // The daemon may end before its reply arrives.
    let _ = wait(guard, Call::Daemon, None, |guard| guard.task().poll_reply(&ticket));
    wait(guard, Call::Daemon, None, |guard| (!guard.task().is_connected()).then_some(()));
    Ok(0)
}
