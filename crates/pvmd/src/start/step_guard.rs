//! The process that `srun` forks to guard its step.
//!
//! When `srun` is killed, this process has Slurm kill the step by SIGKILL. At the end of a batch script Slurm kills all
//! processes of the script one after another, also `srun` and the guard. A guard that acts before it is killed itself
//! has the daemon of the step killed while that daemon ends its tasks and removes its files. Without the guard, the
//! daemon ends because it has lost its master, or because Slurm sends SIGTERM to all steps of a job that is over.
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};

/// The program that starts steps. A script of this name may run it.
const PROGRAM: &str = "srun";

/// What `srun` says when it ends and finds no guard.
const COMPLAINT: &str = "write(shepherd)";

/// Returns whether `srun` only says that its guard is gone.
pub fn is_complaint(line: &str) -> bool {
    line.starts_with(PROGRAM) && line.contains(COMPLAINT)
}

/// Kills the guard of the step that this process, or one that it has started, has begun. The step must run already.
pub fn end(process: u32) {
    end_below(process, &is_srun)
}

/// Kills the guards below a process. `starts_steps` tells which programs start steps.
fn end_below(process: u32, starts_steps: &impl Fn(&Path) -> bool) {
    let Some(own) = program(process) else { return };
    for child in children(process) {
        // Only the guard runs the same program: all other processes that `srun` forks run a program of their own.
        if starts_steps(&own) && program(child).as_ref() == Some(&own) {
            if let Some(child) = Pid::from_raw(child as i32) {
                let _ = kill_process(child, Signal::KILL);
            }
        } else {
            end_below(child, starts_steps);
        }
    }
}

fn is_srun(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == PROGRAM)
}

/// Returns the program that a process runs.
fn program(process: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/exe")).ok()
}

/// Returns the processes that the threads of a process have started.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of_thread = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    of_thread
        .flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn the_guard_is_the_child_that_runs_the_same_program() {
        // `timeout` stands for a script named `srun`, `bash` for `srun`: it forks, and it starts another program.
        let bash = fs::canonicalize("/bin/bash").unwrap();
        let lines = "(read -r line; exit 3) <&0 & guard=$!; sleep 300 & other=$!; wait $guard; echo $?; kill $other";
        let mut command = Command::new("timeout");
        command.arg("60").arg(&bash).args(["-c", lines]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = command.spawn().unwrap();
        let programs = || children(process.id()).into_iter().flat_map(children).filter_map(program).collect::<Vec<_>>();
        let are_ready = |programs: &[PathBuf]| programs.len() == 2 && programs.iter().any(|program| *program != bash);
        let end = Instant::now() + Duration::from_secs(30);
        while !are_ready(&programs()) {
            assert!(Instant::now() < end, "{:?}", programs());
            std::thread::sleep(Duration::from_millis(5));
        }
        end_below(process.id(), &|program| program == bash);
        let output = process.wait_with_output().unwrap();
        assert_eq!((String::from_utf8_lossy(&output.stdout).as_ref(), output.status.code()), ("137\n", Some(0)));
    }
}
