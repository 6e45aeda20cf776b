//! Spawning tasks (contract 2.5), and the variables that they inherit.
use crate::errors::{Failure, Outcome, call, note_if_all_failed};
use crate::memory::{bytes, required_bytes, store_all, string_array};
use crate::process::Guard;
use crate::trace::{text, traced};
use crate::wait::{request, wrong_reply};
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::proto::Reply;
use pvm_core::trace::Value;
use pvm_task::Task;
use std::cell::RefCell;
use std::ffi::{CString, OsStr, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The environment variable that names the variables to pass to spawned tasks.
const EXPORT: &str = "PVM_EXPORT";
/// The environment variable with flags that are added to all spawns of a program.
const EXTRA_FLAGS: &str = "PVMTASK";

/// The arguments of a spawn.
struct Wanted<'a> {
    file: &'a [u8],
    arguments: Vec<&'a [u8]>,
    flags: c_int,
    place: &'a [u8],
    count: c_int,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_spawn(
    file: *const c_char,
    arguments: *const *const c_char,
    flags: c_int,
    place: *const c_char,
    count: c_int,
    tids: *mut c_int,
) -> c_int {
    let before = |_: &mut Task| {
        // SAFETY: strings as the caller promises, or null.
        let (file, place) = unsafe { (text(bytes(file)), text(bytes(place))) };
        vec![file, place, Value::Int(flags), Value::Int(count)]
    };
    let children = RefCell::new(Vec::new());
    let after = |_: &mut Task, code| vec![Value::Int(code), Value::Ints(children.take())];
    traced(
        Event::Spawn,
        before,
        || {
            call("pvm_spawn", |guard| {
                // SAFETY: strings as the caller promises.
                let wanted = unsafe {
                    Wanted {
                        file: required_bytes(file)?,
                        arguments: string_array(arguments),
                        flags: flags | extra_flags(),
                        place: bytes(place).unwrap_or_default(),
                        count,
                    }
                };
                guard.enrolled()?;
                let started = spawn(guard, &wanted)?;
                // SAFETY: room for `count` tids, as the caller promises, or null.
                unsafe { store_all(tids, count, &started) };
                note_if_all_failed(&started);
                let good: Vec<c_int> = started.into_iter().filter(|&tid| tid > 0).collect();
                let count = good.len() as c_int;
                children.replace(good);
                Ok(count)
            })
        },
        after,
    )
}

fn spawn(guard: &mut Guard, wanted: &Wanted<'_>) -> Result<Vec<c_int>, Failure> {
    let Wanted { file, arguments, flags, place, count } = wanted;
    let spawn = guard.task().spawn_request(file, arguments, *flags, place, *count, &exported())?;
    match request(guard, spawn)? {
        Reply::Tids(tids) => Ok(tids),
        other => Ok(wrong_reply(other)?),
    }
}

fn extra_flags() -> c_int {
    let text = std::env::var_os(EXTRA_FLAGS).unwrap_or_default();
    let Ok(text) = CString::new(text.into_vec()) else { return 0 };
    // SAFETY: a C string; the end of the number is not needed.
    unsafe { libc::strtol(text.as_ptr(), std::ptr::null_mut(), 0) as c_int }
}

/// Returns the names in `PVM_EXPORT`. Between two colons, a name is empty.
fn exported_names() -> Vec<Vec<u8>> {
    match std::env::var_os(EXPORT).filter(|list| !list.is_empty()) {
        Some(list) => list.as_bytes().split(|&byte| byte == b':').map(<[u8]>::to_vec).collect(),
        None => Vec::new(),
    }
}

/// Returns `PVM_EXPORT` itself, and the variables in its list that are set.
fn exported() -> Vec<Vec<u8>> {
    let Some(list) = std::env::var_os(EXPORT) else { return Vec::new() };
    let assignment = |name: &[u8], value: &[u8]| [name, b"=", value].concat();
    let mut variables = vec![assignment(EXPORT.as_bytes(), list.as_bytes())];
    for name in exported_names().into_iter().filter(|name| !name.is_empty()) {
        if let Some(value) = std::env::var_os(OsStr::from_bytes(&name)) {
            variables.push(assignment(&name, value.as_bytes()));
        }
    }
    variables
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_export(name: *const c_char) -> c_int {
    // SAFETY: a string as the caller promises.
    change_export("pvm_export", unsafe { bytes(name) }, |names, name| {
        if !name.is_empty() && !names.iter().any(|other| other == name) {
            names.push(name.to_vec());
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_unexport(name: *const c_char) -> c_int {
    // SAFETY: a string as the caller promises.
    change_export("pvm_unexport", unsafe { bytes(name) }, |names, name| {
        if let Some(place) = names.iter().position(|other| !name.is_empty() && other == name) {
            names.remove(place);
        }
    })
}

fn change_export(function: &'static str, name: Option<&[u8]>, change: impl FnOnce(&mut Vec<Vec<u8>>, &[u8])) -> c_int {
    call(function, |_| {
        let name = name.ok_or(Code::BadParam)?;
        let mut names = exported_names();
        change(&mut names, name);
        set_variable(EXPORT, &names.join(&b':'))
    })
}

/// Sets a variable in the environment of the C library.
pub fn set_variable(name: &str, value: &[u8]) -> Outcome {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| Failure::from(Code::BadParam));
    let (name, value) = (text(name.as_bytes())?, text(value)?);
    // SAFETY: two C strings. As with every change of the environment, no other thread may read it at the same time; the
    // manual pages of the calls that use this function say that they change the environment.
    match unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) } {
        0 => Ok(0),
        _ => Err(Code::NoMem.into()),
    }
}
