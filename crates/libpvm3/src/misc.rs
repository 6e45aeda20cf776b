//! Small functions on which programs rely (contract 1.2, tiers B and D).
use crate::errors::call;
use crate::memory::{bytes, store};
use pvm_core::codes::{Code, DM_FIRST, SM_FIRST, TC_FIRST, TM_FIRST};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_uint};
use std::io::Write;

#[unsafe(no_mangle)]
pub extern "C" fn pvm_version() -> *const c_char {
    c"3.4.6".as_ptr()
}

/// Returns the time of day.
pub fn now() -> libc::timeval {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: memory for a time; no time zone is asked for.
    unsafe { libc::gettimeofday(&mut time, std::ptr::null_mut()) };
    time
}

/// `pvmgetclock`: stores the time of day.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmgetclock(time: *mut libc::timeval) -> c_int {
    // SAFETY: a place for the result or null, as the caller promises.
    unsafe { store(time, now()) };
    0
}

/// `pvmsleep`: sleeps for that number of seconds.
#[unsafe(no_mangle)]
pub extern "C" fn pvmsleep(seconds: c_int) -> c_int {
    // SAFETY: has no preconditions.
    unsafe { libc::sleep(seconds as c_uint) as c_int }
}

/// `pvmgettmp`: returns the directory for temporary files.
#[unsafe(no_mangle)]
pub extern "C" fn pvmgettmp() -> *const c_char {
    // SAFETY: a C string; the result belongs to the environment.
    let set = unsafe { libc::getenv(c"PVM_TMP".as_ptr()) };
    if set.is_null() { c"/tmp".as_ptr() } else { set }
}

/// `pvmgetrsh`: returns the program that starts commands on other hosts.
#[unsafe(no_mangle)]
pub extern "C" fn pvmgetrsh() -> *const c_char {
    // SAFETY: a C string; the result belongs to the environment.
    let set = unsafe { libc::getenv(c"PVM_RSH".as_ptr()) };
    if set.is_null() { c"ssh".as_ptr() } else { set }
}

/// `PVMTMPNAMLEN`: the room for the name of a temporary file, with its closing zero, in bytes.
const TEMPORARY_NAME_BYTES: usize = 128;

/// `pvmtmpnam`: returns a name that no file in the temporary directory has; null if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmtmpnam(name: *mut c_char) -> *mut c_char {
    // SAFETY: a C string.
    let directory = unsafe { CStr::from_ptr(pvmgettmp()) }.to_bytes();
    let text = [directory, b"/pvmtmpXXXXXX\0"].concat();
    if name.is_null() || text.len() > TEMPORARY_NAME_BYTES {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's buffer has `PVMTMPNAMLEN` bytes, and the text fits. The file is made only to find a
    // name; its descriptor is used nowhere else.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, text.len());
        let file = libc::mkstemp(name);
        if file < 0 {
            return std::ptr::null_mut();
        }
        libc::close(file);
        libc::unlink(name);
    }
    name
}

/// `pvmputenv`: puts a text `NAME=value` into the environment without copying it; returns -1 if the text has another
/// form.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmputenv(text: *mut c_char) -> c_int {
    // SAFETY: as promised by the caller.
    let at = unsafe { bytes(text) }.and_then(|text| text.iter().position(|byte| *byte == b'='));
    match at {
        None | Some(0) => -1,
        // SAFETY: the text stays where it is, as with `putenv`.
        Some(_) => unsafe { libc::putenv(text) },
    }
}

/// `pvmstrtoi`: returns the number at the beginning of a text, in decimal, hexadecimal (`0x`) or octal (`0`) form.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmstrtoi(text: *const c_char) -> c_int {
    // SAFETY: as promised by the caller.
    let text = unsafe { bytes(text) }.unwrap_or_default();
    let (base, digits) = match text {
        [b'0', b'x' | b'X', digits @ ..] => (16, digits),
        [b'0', digits @ ..] => (8, digits),
        digits => (10, digits),
    };
    let digits = digits.iter().map_while(|byte| char::from(*byte).to_digit(base));
    digits.fold(0, |number: c_int, digit| number.wrapping_mul(base as c_int).wrapping_add(digit as c_int))
}

/// `pvmchkuid`: checks that a user may run PVM. In hpvm every user may run PVM, even root (D28), so the function does
/// nothing; in 3.4.6 it ends the process of a user who may not run PVM.
#[unsafe(no_mangle)]
pub extern "C" fn pvmchkuid(_user: c_int) {}

/// `pvmbailout`: does nothing, as in the library of 3.4.6; the daemon of 3.4.6 has a function of the same name that
/// ends the daemon.
#[unsafe(no_mangle)]
pub extern "C" fn pvmbailout(_code: c_int) {}

/// `pvmsettaskname`: sets the name under which the task will be listed. Fails after the task has enrolled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmsettaskname(name: *const c_char) -> c_int {
    call("pvmsettaskname", |guard| {
        // SAFETY: a string as the caller promises.
        let name = unsafe { bytes(name) }.ok_or(Code::BadParam)?;
        if guard.task().is_enrolled() {
            return Err(Code::Exists.into());
        }
        guard.state().name = name.to_vec();
        Ok(0)
    })
}

/// The names of the reserved tags: for each range its first tag, and the names of that tag and the following ones.
const RESERVED: [(c_int, &[&CStr]); 4] = [
    (
        TM_FIRST,
        &[
            c"TM_CONNECT",
            c"TM_CONN2",
            c"TM_EXIT",
            c"TM_ADDHOST",
            c"TM_DELHOST",
            c"TM_CONFIG",
            c"TM_MSTAT",
            c"TM_HALT",
            c"TM_TICKLE",
            c"TM_SPAWN",
            c"TM_PSTAT",
            c"TM_SENDSIG",
            c"TM_TASK",
            c"TM_MCA",
            c"TM_NOTIFY",
            c"TM_DB",
            c"TM_SCHED",
            c"TM_TASKER",
            c"TM_HOSTER",
            c"TM_TRACER",
            c"TM_HOSTSYNC",
            c"TM_SETOPT",
            c"TM_GETOPT",
            c"TM_CONTEXT",
            c"TM_SHMCONN",
        ],
    ),
    (
        DM_FIRST,
        &[
            c"DM_ADD",
            c"DM_ADDACK",
            c"DM_EXEC",
            c"DM_EXECACK",
            c"DM_SENDSIG",
            c"DM_HTUPD",
            c"DM_HTUPDACK",
            c"DM_HTCOMMIT",
            c"DM_SLCONF",
            c"DM_STARTACK",
            c"DM_TASK",
            c"DM_TASKACK",
            c"DM_DELHOST",
            c"DM_DELHOSTACK",
            c"DM_NULL",
            c"DM_TASKOUT",
            c"DM_PSTAT",
            c"DM_PSTATACK",
            c"DM_HALT",
            c"DM_MCA",
            c"DM_NOTIFY",
            c"DM_NOTIFYACK",
            c"DM_DB",
            c"DM_DBACK",
            c"DM_RESET",
            c"DM_RESETACK",
            c"DM_HTDEL",
            c"DM_HOSTSYNC",
            c"DM_HOSTSYNCACK",
        ],
    ),
    (
        TC_FIRST,
        &[
            c"TC_CONREQ",
            c"TC_CONACK",
            c"TC_TASKEXIT",
            c"TC_NOOP",
            c"TC_OUTPUT",
            c"TC_SETTRACE",
            c"TC_SETTMASK",
            c"TC_SETTRCBUF",
            c"TC_SETTRCOPT",
            c"TC_SHMAT",
            c"TC_OUTPUTX",
            c"TC_SIBLINGS",
        ],
    ),
    (
        SM_FIRST,
        &[
            c"SM_SPAWN",
            c"SM_EXEC",
            c"SM_EXECACK",
            c"SM_TASK",
            c"SM_CONFIG",
            c"SM_ADDHOST",
            c"SM_DELHOST",
            c"SM_ADD",
            c"SM_ADDACK",
            c"SM_NOTIFY",
            c"SM_TASKX",
            c"SM_HOSTX",
            c"SM_HANDOFF",
            c"SM_SCHED",
            c"SM_STHOST",
            c"SM_STHOSTACK",
            c"SM_STTASK",
        ],
    ),
];

/// Returns the name of a reserved tag.
fn reserved_name(tag: c_int) -> Option<&'static CStr> {
    RESERVED.iter().find_map(|(first, names)| {
        let index = usize::try_from(i64::from(tag) - i64::from(*first)).ok()?;
        names.get(index).copied()
    })
}

/// The size in bytes of the longest number as text: sign, ten digits, closing zero.
const NUMBER_BYTES: usize = 12;

thread_local! {
    /// The text that `pvmnametag` returns for a tag without a name; valid until the thread's next such call.
    static NUMBER: UnsafeCell<[u8; NUMBER_BYTES]> = const { UnsafeCell::new([0; NUMBER_BYTES]) };
}

/// `pvmnametag`: returns the name of a reserved tag, or the number of another tag as text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmnametag(tag: c_int, found: *mut c_int) -> *const c_char {
    let name = reserved_name(tag);
    // SAFETY: a place for the result or null, as the caller promises.
    unsafe { store(found, c_int::from(name.is_some())) };
    match name {
        Some(name) => name.as_ptr(),
        None => NUMBER.with(|place| {
            let mut text = [0; NUMBER_BYTES];
            // The text of every `int` fits, so this cannot fail. The bytes after the text stay zero.
            let _ = write!(&mut text[..NUMBER_BYTES - 1], "{tag}");
            // SAFETY: the memory is not borrowed, and lives as long as the thread.
            unsafe { place.get().write(text) };
            place.get().cast()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_tags_have_names_and_others_are_numbers() {
        let name = |tag| {
            let mut found = -1;
            // SAFETY: `found` is valid, the text is valid until the next call.
            let text = unsafe { CStr::from_ptr(pvmnametag(tag, &mut found)) };
            (text.to_str().unwrap_or_default().to_owned(), found)
        };
        assert_eq!(name(SM_FIRST), ("SM_SPAWN".into(), 1));
        assert_eq!(name(TC_FIRST + 10), ("TC_OUTPUTX".into(), 1));
        assert_eq!(name(SM_FIRST + 17), ((SM_FIRST + 17).to_string(), 0));
        assert_eq!(name(c_int::MIN), (c_int::MIN.to_string(), 0));
        assert_eq!(name(77), ("77".into(), 0));
    }
}
