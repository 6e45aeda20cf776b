//! `cargo xtask compile-ahead`: compiles what the parts of `cargo xtask test` need, in their order. The test begins with
//! parts that wait most of the time, and runs this beside them, on processors that are idle otherwise.
use crate::{clippy, lint, sanitize, sim, test};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// Runs the command. What does not compile is reported by the part that needs it.
pub fn run(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|argument| argument == WHILE_OPEN) {
        std::thread::spawn(end_with_input);
    }
    let mut steps: Vec<fn() -> Result<()>> = vec![test::compile_unit_tests, || sim::simulator().map(drop)];
    if arguments.iter().any(|argument| argument == test::ALL) {
        steps.extend([test::compile_loom as fn() -> Result<()>, sanitize::compile_short]);
    }
    steps.extend([clippy::compile, lint::links_resolve]);
    for step in steps {
        // Errors are found again in the foreground.
        let _ = step();
    }
    Ok(())
}

/// With this argument, the command and all processes of its group end at the end of its input.
const WHILE_OPEN: &str = "--while-open";

fn end_with_input() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    let _ = rustix::process::kill_process_group(rustix::process::getpgrp(), Signal::TERM);
}

/// The command in the background. It ends with this, or with the process that has it, however that ends.
pub struct Background(Child);

impl Background {
    /// Starts the command; `all`: for every part. It gets only the time of processors that nothing else wants. A part that
    /// compiles the same waits for it.
    pub fn start(all: bool) -> Result<Background> {
        let mut command = Command::new("chrt");
        command
            .args(["--idle", "0"])
            .arg(std::env::current_exe()?)
            .args(["compile-ahead", WHILE_OPEN])
            .args(all.then_some(test::ALL))
            .process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Background(command.spawn().context("cannot start chrt")?))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
