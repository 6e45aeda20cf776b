//! `pvm_start_pvmd` (contract 2.7): a program starts a machine.
use crate::errors::{Outcome, call};
use crate::memory::strings;
use crate::process::Guard;
use crate::spawn::set_variable;
use crate::trace::{texts, traced_code};
use crate::wait::request;
use pvm_core::codes::Code;
use pvm_core::events::Event;
use pvm_core::proto::Request;
use pvm_core::trace::Value;
use pvm_descriptor::Floor;
use pvm_task::Environment;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The longest line with the path of the daemon's socket, in bytes.
const LINE_BYTES_MAX: u64 = 4096;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_start_pvmd(argc: c_int, argv: *const *const c_char, block: c_int) -> c_int {
    traced_code(
        Event::StartPvmd,
        |_| {
            // SAFETY: strings as the caller promises.
            vec![Value::Int(block), texts(&unsafe { strings(argv, argc) }.unwrap_or_default())]
        },
        || {
            call("pvm_start_pvmd", |guard| {
                // SAFETY: strings as the caller promises.
                let arguments: Vec<Vec<u8>> = unsafe { strings(argv, argc) }?.into_iter().map(<[u8]>::to_vec).collect();
                start(guard, &arguments, block != 0)
            })
        },
    )
}

/// Starts a daemon and enrolls. The daemon prints the path of its socket when its host is ready. If `block` is set,
/// also waits for the hosts of the hostfile.
fn start(guard: &mut Guard, arguments: &[Vec<u8>], block: bool) -> Outcome {
    if Environment::from_process().places.connect().is_ok() {
        return Err(Code::DupHost.into());
    }
    let launched = guard.unlocked(|| daemon_program().and_then(|program| launch(&program, arguments)));
    let socket = launched.ok_or(Code::CantStart)?;
    set_variable("PVMSOCK", &socket)?;
    guard.enrolled()?;
    if block {
        request(guard, Request::AwaitHosts)?;
    }
    Ok(0)
}

/// Searches for the daemon's program: relative to this library, then in `PVM_ROOT`, then in `PATH`.
fn daemon_program() -> Option<PathBuf> {
    let own = own_directory();
    let beside = own.as_ref().map(|directory| directory.join("../bin/pvmd"));
    let above = own.as_deref().and_then(programs_above).map(|directory| directory.join("pvmd"));
    let root = std::env::var_os("PVM_ROOT").filter(|root| !root.is_empty()).map(PathBuf::from);
    let below = |directory: &str| root.as_ref().map(|root| root.join(directory).join("pvmd"));
    let known = [beside, above, below("lib"), below("bin")];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let searched = std::env::split_paths(&path).map(|directory| directory.join("pvmd"));
    known.into_iter().flatten().chain(searched).find(|path| path.is_file())
}

/// Returns `PREFIX/bin` for libraries in a directory such as `PREFIX/lib/x86_64-linux-gnu`, as Debian has it. Returns
/// `None` if the directory above is not `lib`: then anybody may be the owner of what lies above.
fn programs_above(libraries: &Path) -> Option<PathBuf> {
    let above = libraries.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "lib"))?;
    Some(above.parent()?.join("bin"))
}

/// Returns the directory of the file that holds this code.
fn own_directory() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let address = own_directory as *const libc::c_void;
    // SAFETY: an address of this code, and memory for the answer.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroed, and filled above; all zero is a valid answer.
    let file = unsafe { info.assume_init() }.dli_fname;
    if file.is_null() {
        return None;
    }
    // SAFETY: the loader's name of the file, a C string.
    let file = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(file) }.to_bytes()));
    Some(file.canonicalize().ok()?.parent()?.to_owned())
}

/// Starts the daemon in a session of its own, as a child of init, so that it outlives the terminal and this program.
/// Returns the path of its socket.
fn launch(program: &Path, arguments: &[Vec<u8>]) -> Option<Vec<u8>> {
    let _floor = Floor::occupy_standard();
    let mut command = Command::new(program);
    command.args(arguments.iter().map(|argument| OsStr::from_bytes(argument)));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // SAFETY: it calls only what is allowed between fork and exec.
    unsafe { command.pre_exec(step_aside) };
    let mut child = command.spawn().ok()?;
    let output = child.stdout.take()?;
    // The child has forked the daemon, and exits at once. (This wait fails in a program that ignores SIGCHLD, or in
    // which another thread waits for all children.)
    let _ = child.wait();
    let mut line = Vec::new();
    BufReader::new(output).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).ok()?;
    let socket = line.trim_ascii().to_vec();
    Some(socket).filter(|socket| Path::new(OsStr::from_bytes(socket)).is_absolute())
}

/// Forks again in the child: the grandchild, in a session of its own, becomes the daemon.
fn step_aside() -> std::io::Result<()> {
    // SAFETY: after a fork only calls that are safe there; the parent half ends at once.
    unsafe {
        match libc::fork() {
            -1 => Err(std::io::Error::last_os_error()),
            0 => {
                libc::setsid();
                Ok(())
            }
            _ => libc::_exit(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_from_debians_directory_of_libraries() {
        let found = |libraries: &str| programs_above(Path::new(libraries));
        assert_eq!(found("/usr/lib/x86_64-linux-gnu"), Some("/usr/bin".into()));
        assert_eq!((found("/tmp/somebody/lib"), found("/lib64")), (None, None));
    }
}
