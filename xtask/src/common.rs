//! What several commands need: paths, child processes.
use crate::counts::Counts;
use crate::failures;
use anyhow::{Context, Result, bail};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::Command;

/// How much of what a failing command says is passed on, in lines.
const COMPLAINT_LINES_MAX: usize = 30;

/// The root of the source tree.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

/// The distribution tree that `build` makes: bin, lib, include, share. `$HPVM_DIST` moves it.
pub fn dist() -> PathBuf {
    match std::env::var_os("HPVM_DIST") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory),
        _ => root().join("target/dist"),
    }
}

/// The cargo that runs this command.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command, shows what it prints, and fails when it fails.
pub fn sh(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// Runs a command and gives what it wrote to its standard output; fails, with what it wrote to its
/// standard error, when it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let first: Vec<&str> = complaint.lines().take(COMPLAINT_LINES_MAX).collect();
        bail!("{command:?}: {}\n{}", output.status, first.join("\n"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What is being done, for those who watch a terminal.
pub struct Progress(usize);

impl Progress {
    /// Shows it.
    pub fn begin(what: &str) -> Progress {
        if !std::io::stdout().is_terminal() {
            return Progress(0);
        }
        print!("{what} ...");
        // Without it the text comes later.
        let _ = std::io::stdout().flush();
        Progress(what.chars().count() + 4)
    }

    /// Takes it away.
    pub fn end(self) {
        if self.0 > 0 {
            print!("\r{:1$}\r", "", self.0);
        }
    }
}

/// Whether a program of that name is in `PATH`.
pub fn in_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(program).is_file()))
}

/// Counts checks, and tells of those that fail.
#[derive(Default)]
pub struct Checks(Counts);

impl Checks {
    /// Counts one check.
    pub fn check(&mut self, name: &str, result: Result<()>) {
        self.0 += Counts::one(result.is_ok());
        if let Err(error) = result {
            failures::tell(format_args!("FAILED   {name}: {error:#}"));
        }
    }
    /// Counts one check that cannot be made here, and says why.
    pub fn skip(&mut self, name: &str, reason: &str) {
        self.0 += Counts::skip(format_args!("{name}: {reason}"));
    }
    /// How many passed, failed and were skipped.
    pub fn counts(&self) -> Counts {
        self.0
    }
}
