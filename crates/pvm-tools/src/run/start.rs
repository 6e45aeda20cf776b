//! Finds a program and starts its tasks.
use super::RunError;
use crate::cli;
use crate::console::send_spawn;
use crate::control::{Control, SpawnCall};
use crate::variables::Variables;
use pvm_core::codes::{self, Code};
use pvm_core::proto::{Request, RunSettings};
use pvm_task::Session;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The tag of messages with the standard output of tasks; a context of their own distinguishes them from all other
/// messages.
pub const OUTPUT_TAG: i32 = 1;
/// The tag of messages with the standard error of tasks.
pub const ERRORS_TAG: i32 = 3;
/// The variable that names the directory where programs to spawn are searched for last, after the search path of the
/// host.
const BESIDE: &str = "PVMSPAWNPATH";
/// Variables that identify a task: the started tasks must not inherit those of `pvm run`.
pub const IDENTITY: [&str; 10] =
    ["PVMLINES", "PVMSOCK", "PVMEPID", "PVMCTX", "PVMTMASK", "PVMTRCBUF", "PVMTRCOPT", "PVMSPAWNWD", "PVMTASK", BESIDE];
/// Variables that belong to a host or its daemon: a started task gets the values of the host where it runs.
const OF_HOST: [&str; 6] = ["PVM_TMP", "PVM_VMID", "PVM_ARCH", "PVM_ROOT", "XDG_RUNTIME_DIR", "HOSTNAME"];

/// Starts the tasks. Returns tids and error codes.
pub fn spawn(
    session: &mut Session,
    arguments: &cli::Run,
    hosts: &str,
    context: i32,
    run: RunSettings,
) -> Result<Vec<i32>, RunError> {
    let here = std::env::current_dir().map_err(|error| RunError::System("current directory".into(), error))?;
    let directory = match &arguments.directory {
        Some(directory) => {
            let directory = here.join(directory);
            match directory.is_dir() {
                true => directory,
                false => return Err(RunError::System(directory.display().to_string(), no_directory())),
            }
        }
        None => here.clone(),
    };
    let place = [hosts.as_bytes(), b":", directory.as_os_str().as_bytes()].concat();
    let mut start = |file: &Path| start(session, arguments, file, &directory, &place, (context, run));
    let program = Path::new(arguments.program());
    if is_path(program) {
        return Ok(start(&here.join(program))?);
    }
    let tids = start(program)?;
    let not_found = tids.iter().all(|tid| *tid == Code::NoFile.number());
    match elsewhere(program, &here).filter(|_| not_found) {
        Some(file) => Ok(start(&file)?),
        None => Ok(tids),
    }
}

/// Starts the tasks; `file` is a path, or a name to look up in the machine's search path.
fn start(
    session: &mut Session,
    arguments: &cli::Run,
    file: &Path,
    directory: &Path,
    place: &[u8],
    (context, run): (i32, RunSettings),
) -> Result<Vec<i32>, Code> {
    let mut variables = Variables::of_this_process();
    variables.set("PWD", directory);
    let mut environment = variables.pairs(|name| !IDENTITY.contains(&name) && !OF_HOST.contains(&name));
    if let Some(beside) = file.parent().filter(|beside| beside.is_absolute()) {
        environment.push([BESIDE.as_bytes(), b"=", beside.as_os_str().as_bytes()].concat());
    }
    let words: Vec<&[u8]> = arguments.arguments().iter().map(|word| word.as_bytes()).collect();
    let placed = if place.starts_with(b":") { 0 } else { codes::TASK_HOST };
    let input = if arguments.stdin { codes::TASK_INPUT } else { 0 };
    let mut request = session.spawn_request(&SpawnCall {
        file: file.as_os_str().as_bytes(),
        arguments: &words,
        flags: codes::NO_SPAWN_PARENT | placed | input,
        place,
        count: arguments.count,
        environment: &environment,
    })?;
    if let Request::Spawn(spawn) = &mut request {
        spawn.children.run = run;
    }
    send_spawn(session, request, Some((context, OUTPUT_TAG)))
}

/// Returns whether the program is a path and needs no search.
pub fn is_path(program: &Path) -> bool {
    program.as_os_str().as_bytes().contains(&b'/')
}

fn no_directory() -> io::Error {
    io::Error::from(io::ErrorKind::NotADirectory)
}

/// Returns the first executable file with this name in `PATH`, in the directory of `pvm`, or in the current directory.
fn elsewhere(program: &Path, here: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.to_owned()));
    let places = std::env::split_paths(&path).chain(beside).chain([here.to_owned()]);
    places.map(|directory| directory.join(program)).find(|file| {
        file.is_absolute() && file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_in_the_path() {
        let found = |name: &str| elsewhere(Path::new(name), Path::new("/nosuch"));
        assert!(found("sh").is_some_and(|file| file.ends_with("sh") && file.is_absolute()));
        assert_eq!(found("no such program"), None);
    }
}
