//! Finds a program and starts its tasks.
use super::RunError;
use super::placement::Hosts;
use crate::cli::Program;
use crate::console::send_spawn;
use crate::control::{Control, SpawnCall};
use crate::variables::{BESIDE, IDENTITY, Variables};
use pvm_core::codes::{self, Code};
use pvm_core::machine::{InputOf, RunPlan};
use pvm_core::proto::{Request, RunSettings};
use pvm_task::Session;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The tag of messages with the standard output of tasks; a context of their own distinguishes them from all other
/// messages.
pub const OUTPUT_TAG: i32 = 1;
/// The tag of messages with the standard error of tasks.
pub const ERRORS_TAG: i32 = 3;
/// Variables that belong to a host or its daemon: a started task gets the values of the host where it runs.
const OF_HOST: [&str; 6] = ["PVM_TMP", "PVM_VMID", "PVM_ARCH", "PVM_ROOT", "XDG_RUNTIME_DIR", "HOSTNAME"];

/// The tag of messages with the output, and the settings of the daemons, for all programs of a run.
#[derive(Clone, Copy)]
pub struct Output {
    /// The context of the messages.
    pub context: i32,
    /// The settings.
    pub run: RunSettings,
}

/// Starts the tasks of a program. Returns tids in the order of the tasks' numbers, or tids and error codes.
pub fn spawn(
    session: &mut Session,
    program: &Program,
    plan: RunPlan,
    hosts: &Hosts,
    output: Output,
) -> Result<Vec<i32>, RunError> {
    let here = std::env::current_dir().map_err(|error| RunError::System("current directory".into(), error))?;
    let directory = directory_of(program, &here)?;
    let plan = RunPlan { hosts_in_turn: hosts.in_turn(), ..plan };
    let place = [hosts.place(plan.first, program.count).as_bytes(), b":", directory.as_os_str().as_bytes()].concat();
    let mut start = |file: &Path| start(session, (program, file), &directory, &place, plan, output);
    let file = Path::new(program.file());
    let tids = match is_path(file) {
        true => start(&here.join(file))?,
        false => {
            let tids = start(file)?;
            let not_found = tids.iter().all(|tid| *tid == Code::NoFile.number());
            match elsewhere(file, &here).filter(|_| not_found) {
                Some(file) => start(&file)?,
                None => tids,
            }
        }
    };
    let mut numbered: Vec<(i32, i32)> = (0..).map(|instance| plan.index(instance, program.count)).zip(tids).collect();
    if numbered.iter().all(|(_, tid)| *tid > 0) {
        numbered.sort_unstable();
    }
    Ok(numbered.into_iter().map(|(_, tid)| tid).collect())
}

/// Returns the directory of the program's tasks, as an absolute path. A daemon reports a directory that the tasks cannot
/// enter as it reports a program that is not there.
pub fn directory_of(program: &Program, here: &Path) -> Result<PathBuf, RunError> {
    let directory = program.directory.as_ref().map_or_else(|| here.to_owned(), |directory| here.join(directory));
    match rustix::fs::access(directory.join("."), rustix::fs::Access::EXEC_OK) {
        Ok(()) => Ok(directory),
        Err(error) => {
            let what = format!("{} (the directory of the tasks, see --wd)", directory.display());
            Err(RunError::System(what, error.into()))
        }
    }
}

/// Returns the variables that the tasks of a program get: those of this process, except those of its host and of its
/// own task, and those of `-x`, which tasks also pass on to tasks that they spawn.
pub fn environment(program: &Program, directory: &Path) -> Result<Vec<Vec<u8>>, RunError> {
    let mut variables = Variables::of_this_process();
    variables.set("PWD", directory);
    for (name, value) in &program.exports {
        match value.clone().or_else(|| std::env::var_os(name)) {
            Some(value) => variables.set(name, value),
            None => return Err(RunError::NotSet(name.clone())),
        }
        variables.export(name);
    }
    let is_wanted = |name: &str| {
        let is_asked_for = program.exports.iter().any(|(export, _)| export == name);
        is_asked_for || !IDENTITY.contains(&name) && !OF_HOST.contains(&name)
    };
    Ok(variables.pairs(is_wanted))
}

/// Starts the tasks; `file` is a path, or a name to look up in the machine's search path.
fn start(
    session: &mut Session,
    (program, file): (&Program, &Path),
    directory: &Path,
    place: &[u8],
    plan: RunPlan,
    output: Output,
) -> Result<Vec<i32>, RunError> {
    let mut environment = environment(program, directory)?;
    if let Some(beside) = file.parent().filter(|beside| beside.is_absolute()) {
        environment.push([BESIDE.as_bytes(), b"=", beside.as_os_str().as_bytes()].concat());
    }
    environment.push(plan.variable());
    let words: Vec<&[u8]> = program.arguments().iter().map(|word| word.as_bytes()).collect();
    let placed = if place.starts_with(b":") { 0 } else { codes::TASK_HOST };
    let input = if plan.input == InputOf::None { 0 } else { codes::TASK_INPUT };
    let mut request = session.spawn_request(&SpawnCall {
        file: file.as_os_str().as_bytes(),
        arguments: &words,
        flags: codes::NO_SPAWN_PARENT | placed | input,
        place,
        count: program.count,
        environment: &environment,
    })?;
    if let Request::Spawn(spawn) = &mut request {
        spawn.children.run = output.run;
    }
    Ok(send_spawn(session, request, Some((output.context, OUTPUT_TAG)))?)
}

/// Returns whether the program is a path and needs no search.
pub fn is_path(program: &Path) -> bool {
    program.as_os_str().as_bytes().contains(&b'/')
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
