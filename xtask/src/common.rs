//! Helpers of several commands: paths, child processes, checks.
use crate::counts::Counts;
use crate::failures;
use anyhow::{Context, Result, bail};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::Command;

#[path = "../../crates/pvm-fuzz/src/source_tree.rs"]
mod source_tree;

/// The most lines that are shown of a failing command's messages.
const COMPLAINT_LINES_MAX: usize = 30;

/// Returns the root of the source tree.
pub fn root() -> PathBuf {
    source_tree::root().to_path_buf()
}

/// Returns the distribution tree that `build` makes: bin, lib, include, share. If `$HPVM_DIST` is set, it is the path
/// of the tree.
pub fn dist() -> PathBuf {
    match std::env::var_os("HPVM_DIST") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory),
        _ => root().join("target/dist"),
    }
}

/// Returns the cargo that runs this command. It is run in the root of the source tree.
pub fn cargo() -> Command {
    let mut command = cargo_here();
    command.current_dir(root());
    command
}

/// Returns the cargo that runs this command. It is run in the current directory.
pub fn cargo_here() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The cargo that runs this program describes the program's package in these variables. A build script of ring runs
    // again when they change: after a command of another package, everything would be compiled again.
    let of_package = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

/// Runs a command that prints to the terminal. Fails if the command fails.
pub fn sh(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", words(command)))?;
    if !status.success() {
        bail!("{}: {status}", words(command));
    }
    Ok(())
}

/// Runs a command and returns its standard output. If the command fails, the error contains its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", words(command)))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let first: Vec<&str> = complaint.lines().take(COMPLAINT_LINES_MAX).collect();
        bail!("{}: {}\n{}", words(command), output.status, first.join("\n"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns a command as one would type it, without its folder and its variables.
fn words(command: &Command) -> String {
    let all = [command.get_program()].into_iter().chain(command.get_args());
    all.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Returns the files below these directories that have one of these extensions; without extensions, all files.
pub fn files_under(directories: &[&str], endings: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut left: Vec<PathBuf> =
        directories.iter().map(|name| root().join(name)).filter(|path| path.exists()).collect();
    while let Some(directory) = left.pop() {
        for entry in directory.read_dir()? {
            let path = entry?.path();
            let ending = path.extension().map(|ending| ending.to_string_lossy().into_owned()).unwrap_or_default();
            if path.is_dir() {
                left.push(path);
            } else if endings.is_empty() || endings.contains(&&*ending) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// A message on a terminal about the current work.
pub struct Progress(usize);

impl Progress {
    /// Shows the message.
    pub fn begin(what: &str) -> Progress {
        if !std::io::stdout().is_terminal() {
            return Progress(0);
        }
        print!("{what} ...");
        // Without this call, the text would appear late.
        let _ = std::io::stdout().flush();
        Progress(what.chars().count() + 4)
    }

    /// Removes the message.
    pub fn end(self) {
        if self.0 > 0 {
            print!("\r{:1$}\r", "", self.0);
        }
    }
}

/// Returns whether `PATH` has a program of that name.
pub fn in_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(program).is_file()))
}

/// Counts checks, and reports those that fail.
#[derive(Default)]
pub struct Checks(Counts);

impl Checks {
    /// Counts one check.
    pub fn check(&mut self, name: &str, result: Result<()>) {
        self.0 += Counts::one(result.is_ok());
        if let Err(error) = result {
            failures::report(format_args!("FAILED   {name}: {error:#}"));
        }
    }
    /// Counts a check that cannot be made here, and prints the reason.
    pub fn skip(&mut self, name: &str, reason: &str) {
        self.0 += Counts::skip(format_args!("{name}: {reason}"));
    }
    /// Returns the counts.
    pub fn counts(&self) -> Counts {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_does_not_know_which_command_runs_it() {
        let cargo = cargo();
        let removed = |wanted: &str| cargo.get_envs().any(|(name, value)| name == wanted && value.is_none());
        // The cargo that runs this test has set both.
        assert!(removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_NAME"));
    }
}
