//! `cargo xtask compile-ahead`: compiles what the last parts of `cargo xtask test` need: these have compilers or flags of their
//! own. The test runs this beside the parts that wait most of the time, on processors that are idle otherwise.
use crate::{clippy, sanitize, test};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Runs the command. What does not compile is reported by the part that needs it.
pub fn run(_arguments: &[String]) -> Result<()> {
    let steps: [fn() -> Result<()>; 3] = [test::compile_loom, sanitize::compile_short, clippy::compile];
    for step in steps {
        // Errors are found again in the foreground.
        let _ = step();
    }
    Ok(())
}

/// The command in the background. It ends when this is dropped.
pub struct Background(Child);

impl Background {
    /// Starts the command. It gets only the time of processors that nothing else wants, so it delays no test.
    pub fn start() -> Result<Background> {
        let mut command = Command::new("chrt");
        command.args(["--idle", "0"]).arg(std::env::current_exe()?).arg("compile-ahead").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Background(command.spawn().context("cannot start chrt")?))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // A process that has ended, but has not been waited for, keeps its number.
        if matches!(self.0.try_wait(), Ok(None)) {
            if let Some(group) = Pid::from_raw(self.0.id() as i32) {
                let _ = rustix::process::kill_process_group(group, Signal::TERM);
            }
        }
        let _ = self.0.wait();
    }
}
