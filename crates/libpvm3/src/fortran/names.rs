//! Calls with a name among their arguments.
use super::text::{c_text, c_text_with_blanks};
use crate::errors::pvm_perror;
use crate::hosts::{pvm_addhosts, pvm_archcode, pvm_delhosts, pvm_mstat};
use crate::mailbox::{pvm_delinfo, pvm_putinfo, pvm_recvinfo};
use crate::memory::store;
use crate::spawn::pvm_spawn;
use crate::start::pvm_start_pvmd;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null;

/// Calls whose first argument is a name, whose other arguments are numbers, and whose result is a number.
macro_rules! named {
    ($($name:ident(name $(, $argument:ident)*) is $function:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            name: *const c_char,
            $($argument: *const c_int,)*
            result: *mut c_int,
            name_length: c_int,
        ) {
            // SAFETY: a name, numbers to read and a place for the result, as every Fortran program
            // passes.
            unsafe {
                let name = c_text(name, name_length);
                store(result, $function(name.as_ptr() $(, *$argument)*));
            }
        }
    )*};
}
pub(super) use named;

named! {
    pvmfarchcode_(name) is pvm_archcode;
    pvmfmstat_(name) is pvm_mstat;
    pvmfputinfo_(name, mid, flags) is pvm_putinfo;
    pvmfrecvinfo_(name, index, flags) is pvm_recvinfo;
    pvmfdelinfo_(name, index, flags) is pvm_delinfo;
    pvmfaddhost_(name) is add_host;
    pvmfdelhost_(name) is delete_host;
}

/// Adds a host. Returns its tid, or the error code.
///
/// # Safety
/// `name` is a C string.
unsafe fn add_host(name: *const c_char) -> c_int {
    let mut result = 0;
    // SAFETY: one C string, as promised by the caller, and one place.
    let code = unsafe { pvm_addhosts(&name, 1, &mut result) };
    if code < 0 { code } else { result }
}

/// Deletes a host. Returns zero, or the error code.
///
/// # Safety
/// `name` is a C string.
unsafe fn delete_host(name: *const c_char) -> c_int {
    let mut result = 0;
    // SAFETY: one C string, as promised by the caller, and one place.
    let code = unsafe { pvm_delhosts(&name, 1, &mut result) };
    if code < 0 { code } else { result }
}

/// The message is printed with its trailing blanks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfperror_(message: *const c_char, info: *mut c_int, message_length: c_int) {
    // SAFETY: a text and a place for the result, as the caller promises.
    unsafe { store(info, pvm_perror(c_text_with_blanks(message, message_length).as_ptr())) }
}

/// The tasks get no arguments. A place that begins with `*` stands for any place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfspawn_(
    file: *const c_char,
    flags: *const c_int,
    place: *const c_char,
    count: *const c_int,
    tids: *mut c_int,
    started: *mut c_int,
    file_length: c_int,
    place_length: c_int,
) {
    // SAFETY: texts, numbers and places for `count` tids and the result, as the caller promises.
    unsafe {
        let (file, place) = (c_text(file, file_length), c_text(place, place_length));
        let place = if place.as_bytes().starts_with(b"*") { null() } else { place.as_ptr() };
        store(started, pvm_spawn(file.as_ptr(), null(), *flags, place, *count, tids));
    }
}

/// All arguments for the daemon are in one text, separated by blanks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfstartpvmd_(
    arguments: *const c_char,
    block: *const c_int,
    info: *mut c_int,
    arguments_length: c_int,
) {
    // SAFETY: a text, a number and a place for the result, as the caller promises.
    unsafe {
        let words = words(&c_text(arguments, arguments_length));
        let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        store(info, pvm_start_pvmd(pointers.len() as c_int, pointers.as_ptr(), *block));
    }
}

/// Splits a text into words at blanks and tabs.
fn words(text: &CStr) -> Vec<CString> {
    let words = text.to_bytes().split(|&byte| byte == b' ' || byte == b'\t').filter(|word| !word.is_empty());
    words.map(|word| CString::new(word).expect("a part of a C string has no zero")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_between_blanks_and_tabs() {
        assert_eq!(words(c" -d0\t\thosts file "), [c"-d0".into(), c"hosts".into(), CString::from(c"file")]);
        assert!(words(c"  ").is_empty());
    }
}
