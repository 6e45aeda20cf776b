//! The library's messages on standard error.
use crate::data::pvmmytid;
use pvm_task::{EnrollError, Environment};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::Relaxed;

/// Returns `[t40001]`, or `[pid1234]` outside the machine.
pub fn tag() -> String {
    match pvmmytid.load(Relaxed) {
        -1 => format!("[pid{}]", std::process::id()),
        tid => format!("[t{tid:x}]"),
    }
}

/// Prints a line in the format of failed calls.
pub fn print_message(message: &[u8]) {
    print_error(&[b"libpvm ", tag().as_bytes(), b": ", message, b"\n"].concat());
}

/// Prints a line of the library's own log.
pub fn log(message: &[u8]) {
    print_error(&[b"libpvm ", tag().as_bytes(), b" ", message, b"\n"].concat());
}

pub fn print_error(line: &[u8]) {
    unsafe extern "C" {
        static stderr: *mut libc::FILE;
    }
    // SAFETY: the C library's stream; programs may have redirected it.
    without_broken_pipe(|| unsafe {
        libc::fwrite(line.as_ptr().cast(), 1, line.len(), stderr);
        libc::fflush(stderr);
    });
}

/// Writes without raising SIGPIPE. The standard error of a spawned task is a pipe to its daemon. If the daemon is
/// killed, the next call fails, and printing this failure must not kill a program that handles it.
fn without_broken_pipe(write: impl FnOnce()) {
    let mut broken_pipe = MaybeUninit::<libc::sigset_t>::uninit();
    let (mut before, mut pending) = (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::<libc::sigset_t>::uninit());
    // SAFETY: each set is filled before it is used.
    unsafe {
        libc::sigemptyset(broken_pipe.as_mut_ptr());
        libc::sigaddset(broken_pipe.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, broken_pipe.as_ptr(), before.as_mut_ptr());
        libc::sigpending(pending.as_mut_ptr());
        // A signal that was pending before is the program's own, and stays pending.
        let was_pending = libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1;
        write();
        if !was_pending {
            let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(broken_pipe.as_ptr(), std::ptr::null_mut(), &raw const no_time);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}

/// Prints the reason why the process cannot enroll.
#[cold]
pub fn log_enroll_failure(environment: &Environment, error: &EnrollError) {
    use std::os::unix::ffi::OsStrExt;
    let message = match (error, environment.places.files.first()) {
        (EnrollError::NoDaemon, Some(file)) => [file.as_os_str().as_bytes(), b": No such file or directory"].concat(),
        _ => error.to_string().into_bytes(),
    };
    log(&message);
}
