//! Runs programs whose time is limited.
use anyhow::Result;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// The interval between two checks whether a program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(4);

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By itself, with this code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It did not end in time, and was killed.
    Timeout,
}

impl End {
    /// Returns the line that is appended to the output.
    pub fn last_line(self) -> String {
        match self {
            End::Exit(code) => format!("exit: {code}\n"),
            End::Signal(number) => format!("signal: {number}\n"),
            End::Timeout => "timeout\n".to_string(),
        }
    }
}

/// Runs a command to its end; kills its process group after `timeout`.
pub fn wait(command: &mut Command, timeout: Duration) -> Result<End> {
    let mut child = command.spawn()?;
    let end = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            kill_group(&child);
            return Ok(ended(status));
        }
        if Instant::now() > end {
            kill_group(&child);
            child.wait()?;
            return Ok(End::Timeout);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn ended(status: ExitStatus) -> End {
    match status.code() {
        Some(code) => End::Exit(code),
        None => End::Signal(status.signal().unwrap_or(0)),
    }
}

/// Kills the child's process group: the child, and the processes it started that are still in that group.
fn kill_group(child: &Child) {
    if let Some(id) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
    }
}
