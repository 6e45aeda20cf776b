//! Failures of calls (contract 2.0): `pvm_errno`, the line on stderr, the policy of `PvmAutoErr`.
use crate::data::{self, pvm_errno, pvmautoerr};
use crate::leaving::leave;
use crate::messages::{log, print_error, print_message, tag};
use crate::process::{Guard, enter};
use crate::trace::{nothing, traced_code};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// `PvmAutoErr`: print the failure, leave the machine, exit.
const AUTO_ERROR_EXIT: c_int = 2;
/// `PvmAutoErr`: print the failure, abort.
const AUTO_ERROR_ABORT: c_int = 3;

/// The code of a failure: a PVM code, or any negative number that a user's matching function has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure(pub c_int);

impl From<Code> for Failure {
    fn from(code: Code) -> Failure {
        Failure(code.number())
    }
}

/// The result of the body of a call.
pub type Outcome = Result<c_int, Failure>;

/// Runs one call of the interface under the lock; if it fails, sets `pvm_errno` and prints the failure.
#[inline(always)]
pub fn call(function: &'static str, body: impl FnOnce(&mut Guard) -> Outcome) -> c_int {
    match attempt(body) {
        Ok(value) => value,
        Err(failure) => failed(function, failure),
    }
}

/// As [`call`], but for the codes in `quiet` only sets `pvm_errno` and prints nothing.
#[inline(always)]
pub fn call_quiet(function: &'static str, quiet: &[Code], body: impl FnOnce(&mut Guard) -> Outcome) -> c_int {
    match attempt(body) {
        Ok(value) => value,
        Err(Failure(number)) if quiet.iter().any(|code| code.number() == number) => {
            pvm_errno.store(number, Relaxed);
            number
        }
        Err(failure) => failed(function, failure),
    }
}

/// As [`call`], but on failure neither sets `pvm_errno` nor prints.
#[inline(always)]
pub fn call_silent(body: impl FnOnce(&mut Guard) -> Outcome) -> c_int {
    match attempt(body) {
        Ok(value) => value,
        Err(Failure(number)) => number,
    }
}

#[inline(always)]
fn attempt(body: impl FnOnce(&mut Guard) -> Outcome) -> Outcome {
    match enter() {
        Some(mut guard) => body(&mut guard),
        None => Err(Code::SysErr.into()),
    }
}

#[cold]
#[inline(never)]
fn failed(function: &str, Failure(number): Failure) -> c_int {
    if number == Code::SysErr.number() && pvmautoerr.load(Relaxed) > 0 {
        tell_closed_descriptors();
    }
    lpvm_error(function.as_bytes(), number)
}

/// Explains once that calls fail because the program has closed descriptors of the library.
fn tell_closed_descriptors() {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let is_lost = enter().is_some_and(|mut guard| guard.task().has_lost_descriptors());
    if is_lost && !IS_TOLD.swap(true, Relaxed) {
        print_message(b"the program has closed the library's descriptors; pvm_mytid() enrolls it again");
    }
}

/// Sets `pvm_errno` to the first failure if all parts of a call have failed; `pvm_perror` then prints this failure. The
/// call itself succeeds.
pub fn note_if_all_failed(results: &[c_int]) {
    if let Some(first) = results.first().filter(|_| results.iter().all(|result| *result < 0)) {
        pvm_errno.store(*first, Relaxed);
    }
}

/// Sets `pvm_errno` and does what `PvmAutoErr` says. The lock must not be held, since the process may end here.
pub fn lpvm_error(function: &[u8], number: c_int) -> c_int {
    pvm_errno.store(number, Relaxed);
    let policy = pvmautoerr.load(Relaxed);
    if policy > 0 {
        print_message(&[function, b"(): ", text(number)].concat());
    }
    match policy {
        AUTO_ERROR_EXIT => {
            pvmautoerr.store(1, Relaxed);
            exit();
            // SAFETY: the lock is not held, so exit handlers may call the library.
            unsafe { libc::exit(number) }
        }
        AUTO_ERROR_ABORT => std::process::abort(),
        _ => number,
    }
}

/// Leaves the machine, as the call `pvm_exit`.
pub fn exit() -> c_int {
    traced_code(Event::Exit, nothing, || {
        call("pvm_exit", |guard| {
            leave(guard)?;
            Ok(0)
        })
    })
}

fn text(number: c_int) -> &'static [u8] {
    // SAFETY: the texts are constant C strings.
    unsafe { CStr::from_ptr(data::error_text(number).0) }.to_bytes()
}

/// `pvm_perror`: prints `message` and the last failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_perror(message: *const c_char) -> c_int {
    // SAFETY: as promised by the caller.
    let message = unsafe { crate::memory::bytes(message) }.unwrap_or(b"(null)");
    print_message(&[message, b": ", text(pvm_errno.load(Relaxed))].concat());
    0
}

/// `pvm_strerror`: returns the text of the last failure.
#[unsafe(no_mangle)]
pub extern "C" fn pvm_strerror() -> *const c_char {
    data::error_text(pvm_errno.load(Relaxed)).0
}

/// `lpvmerr`: reports a failure of the program as the library reports its own: sets `pvm_errno` and prints the failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lpvmerr(function: *const c_char, code: c_int) -> c_int {
    // SAFETY: as promised by the caller.
    let function = unsafe { crate::memory::bytes(function) }.unwrap_or(b"(null)");
    lpvm_error(function, code)
}

/// `pvmlogerror`: prints a text after the prefix `libpvm [t40001]`, and adds no line feed. The Fortran wrappers of
/// other PVM installations call this function, and some programs are linked with these wrappers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmlogerror(text: *const c_char) -> c_int {
    // SAFETY: as promised by the caller.
    let text = unsafe { crate::memory::bytes(text) }.unwrap_or(b"(null)");
    print_error(&[b"libpvm ", tag().as_bytes(), b": ", text].concat());
    0
}

/// `pvmlogperror`: prints the system's last failure, as `perror` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmlogperror(text: *const c_char) -> c_int {
    let number = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    // SAFETY: as promised by the caller.
    let text = unsafe { crate::memory::bytes(text) }.unwrap_or(b"(null)");
    // SAFETY: the C library has a text for every number; it is valid until the next call by this thread.
    let why = unsafe { CStr::from_ptr(libc::strerror(number)) }.to_bytes();
    log(&[text, b": ", why].concat());
    0
}
