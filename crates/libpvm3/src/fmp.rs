//! What `libfmp.so` calls: FMP by itself (`docs/fmp.md`).
//!
//! These functions are in this library, because a process has one task, whichever of the two libraries it calls. Each
//! function `fmp_x` of `libfmp.so` only jumps to `hpvm_fmp_x`. Unlike calls of PVM, calls of FMP print nothing, leave
//! `pvm_errno` as it is, and are not traced.
use crate::errors::Failure;
use crate::memory::{store, writable};
use crate::process::{Guard, enter};
use crate::receive::cannot_receive;
use crate::send::submit;
use crate::wait::wait_on;
use crate::{fast_path, tasks};
use pvm_core::codes::Code;
use pvm_core::state_line::Call;
use pvm_fmp::BODY_BYTES_MAX;
use pvm_task::{FastSend, Filter, FmpFound, FmpReceived, FmpSide, Task};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::slice;

/// The error codes of `fmp.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
enum FmpError {
    /// A parameter is wrong.
    Invalid = -1,
    /// There is no memory.
    NoMemory = -2,
    /// There is no virtual machine.
    NoMachine = -3,
    /// The message is longer than the memory for it.
    Truncated = -4,
    /// The message is longer than any message may be.
    TooLong = -5,
    /// The task has no parent.
    NoParent = -6,
    /// The call cannot be made inside another call.
    Busy = -7,
}

impl From<Code> for FmpError {
    fn from(code: Code) -> FmpError {
        match code {
            Code::BadParam => FmpError::Invalid,
            // The first message to a task needs file descriptors, too.
            Code::NoMem | Code::OutOfRes => FmpError::NoMemory,
            Code::NoParent | Code::ParentNotSet => FmpError::NoParent,
            Code::NotImpl => FmpError::Busy,
            _ => FmpError::NoMachine,
        }
    }
}

impl From<Failure> for FmpError {
    fn from(Failure(number): Failure) -> FmpError {
        Code::from_number(number).map_or(FmpError::NoMachine, FmpError::from)
    }
}

/// `fmp_info` of `fmp.h`.
#[repr(C)]
pub struct FmpInfo {
    source: c_int,
    tag: c_int,
    length: usize,
}

impl From<FmpFound> for FmpInfo {
    #[inline(always)]
    fn from(found: FmpFound) -> FmpInfo {
        FmpInfo { source: found.source, tag: found.tag, length: found.bytes }
    }
}

/// Runs a call of an enrolled task.
fn call(body: impl FnOnce(&mut Guard) -> Result<c_int, FmpError>) -> c_int {
    let Some(mut guard) = enter() else { return FmpError::Busy as c_int };
    let enrolled = guard.enrolled_silently().map_err(FmpError::from);
    enrolled.and_then(|()| body(&mut guard)).unwrap_or_else(|error| error as c_int)
}

/// `fmp_self`.
#[unsafe(no_mangle)]
pub extern "C" fn hpvm_fmp_self() -> c_int {
    call(|guard| Ok(guard.task().tid().ok_or(FmpError::NoMachine)?.0 as c_int))
}

/// `fmp_parent`.
#[unsafe(no_mangle)]
pub extern "C" fn hpvm_fmp_parent() -> c_int {
    call(|guard| Ok(guard.task().parent()?.0 as c_int))
}

/// `fmp_siblings`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_fmp_siblings(addresses: *mut c_int, room: usize) -> c_int {
    if addresses.is_null() && room > 0 {
        return FmpError::Invalid as c_int;
    }
    call(|guard| {
        let siblings = tasks::siblings(guard)?;
        for (place, &sibling) in siblings.iter().take(room).enumerate() {
            // SAFETY: the caller promises that there are `room` places.
            unsafe { addresses.add(place).write(sibling) };
        }
        Ok(siblings.len() as c_int)
    })
}

/// `fmp_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_fmp_send(destination: c_int, tag: c_int, data: *const c_void, length: usize) -> c_int {
    // SAFETY: data as the caller promises.
    match unsafe { fast_path::fmp_send(destination, tag, data, length) } {
        FastSend::Done => 0,
        // SAFETY: data as the caller promises.
        FastSend::NotDone => unsafe { send(destination, tag, data, length) },
        FastSend::Wake => wake(destination),
    }
}

/// Finishes a send after [`FastSend::Wake`].
#[cold]
#[inline(never)]
fn wake(destination: c_int) -> c_int {
    call(|guard| {
        guard.task().wake_receiver(destination as u32)?;
        Ok(0)
    })
}

/// # Safety
/// `data` points to `length` bytes, or `length` is 0.
#[inline(never)]
unsafe fn send(destination: c_int, tag: c_int, data: *const c_void, length: usize) -> c_int {
    if length > BODY_BYTES_MAX {
        return FmpError::TooLong as c_int;
    }
    let body: &[u8] = match length {
        0 => &[],
        _ if data.is_null() => return FmpError::Invalid as c_int,
        // SAFETY: data as the caller promises.
        _ => unsafe { slice::from_raw_parts(data.cast(), length) },
    };
    call(|guard| Ok(submit(guard, |task| task.fmp_send(destination, tag, body))?))
}

/// `fmp_receive`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_fmp_receive(
    source: c_int,
    tag: c_int,
    data: *mut c_void,
    size: usize,
    info: *mut FmpInfo,
) -> c_int {
    // SAFETY: data as the caller promises.
    match unsafe { fast_path::fmp_receive(source, tag, data, size) } {
        Some(found) => {
            // SAFETY: null or a place, as the caller promises.
            unsafe { store(info, found.into()) };
            0
        }
        // SAFETY: all as the caller promises.
        None => unsafe { receive(source, tag, data, size, info) },
    }
}

/// # Safety
/// As the caller of `fmp_receive` promises.
#[inline(never)]
unsafe fn receive(source: c_int, tag: c_int, data: *mut c_void, size: usize, info: *mut FmpInfo) -> c_int {
    if size > 0 && data.is_null() {
        return FmpError::Invalid as c_int;
    }
    let start = if size == 0 { NonNull::dangling().as_ptr() } else { data.cast() };
    // No message is longer, so the rest of the memory stays unused.
    let room = Room { start, bytes: size.min(BODY_BYTES_MAX) };
    call(|guard| {
        if guard.task().in_handler() {
            return Err(FmpError::Busy);
        }
        let filter = Task::fmp_filter(source, tag)?;
        let (found, result) = match room.receive(guard, &filter)? {
            FmpReceived::Whole(found) => (found, Ok(0)),
            FmpReceived::TooLong(found) => (found, Err(FmpError::Truncated)),
        };
        // SAFETY: null or a place, as the caller promises.
        unsafe { store(info, found.into()) };
        result
    })
}

/// The user's memory for a message.
struct Room {
    start: *mut u8,
    bytes: usize,
}

impl Room {
    /// Tries once to receive.
    #[inline(always)]
    fn fill(&self, guard: &mut Guard, filter: &Filter) -> Option<FmpReceived> {
        // SAFETY: the caller of `fmp_receive` promises that there is room, and that nothing else uses it before the
        // call returns. Each try ends before the thread sleeps.
        let received = guard.task().try_fmp_receive(filter, unsafe { writable(self.start, self.bytes) });
        guard.run_callbacks();
        received
    }

    /// Receives; waits for the message.
    fn receive(&self, guard: &mut Guard, filter: &Filter) -> Result<FmpReceived, Failure> {
        if let Some(received) = self.fill(guard, filter) {
            return Ok(received);
        }
        guard.task().begin_precv(filter, self.bytes);
        let received =
            wait_on(guard, Call::PostedReceive(filter.wanted(), self.bytes as u64), None, &mut |guard| match self
                .fill(guard, filter)
            {
                Some(received) => Some(Ok(received)),
                None => cannot_receive(guard, filter.src),
            });
        guard.task().end_precv();
        received.unwrap_or(Err(Code::SysErr.into()))
    }
}

/// `fmp_probe_local`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_fmp_probe_local(source: c_int, tag: c_int, info: *mut FmpInfo) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { probe(FmpSide::Local, source, tag, info) }
}

/// `fmp_probe_network`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hpvm_fmp_probe_network(source: c_int, tag: c_int, info: *mut FmpInfo) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { probe(FmpSide::Network, source, tag, info) }
}

/// # Safety
/// `info` is null or a place for the result.
unsafe fn probe(side: FmpSide, source: c_int, tag: c_int, info: *mut FmpInfo) -> c_int {
    call(|guard| {
        let filter = Task::fmp_filter(source, tag)?;
        let found = guard.task().fmp_probe(&filter, side);
        guard.run_callbacks();
        match found {
            Some(found) => {
                // SAFETY: null or a place, as the caller promises.
                unsafe { store(info, found.into()) };
                Ok(1)
            }
            None => Ok(cannot_receive(guard, filter.src).unwrap_or(Ok(0))?),
        }
    })
}
