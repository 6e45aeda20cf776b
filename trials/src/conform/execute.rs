//! Runs a case on one side.

use super::case::{Case, Kind};
use super::compile;
use super::machine::{Machine, Side};
use super::normalise;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
pub use xtask::ending::{End, wait};

/// The result of a case on one side.
#[derive(Debug)]
pub struct Outcome {
    pub end: End,
    /// The normalised output; its last line says how the program ended.
    pub text: String,
}

/// Runs cases on either side.
pub trait Runner {
    /// Runs a case.
    fn run(&mut self, case: &Case, side: Side) -> Result<Outcome>;
}

/// Runs cases one after the other. Keeps a machine of each side for the cases that can share it.
pub struct Worker {
    theirs: Option<Machine>,
    ours: Option<Machine>,
}

impl Worker {
    /// Makes a worker without machines; they are started when a case needs them.
    pub fn new() -> Worker {
        Worker { theirs: None, ours: None }
    }
}

impl Runner for Worker {
    fn run(&mut self, case: &Case, side: Side) -> Result<Outcome> {
        if case.fresh {
            let mut machine = Machine::new(side, &case.daemon_env)?;
            if case.daemon {
                machine.start(&case.hostfile)?;
            }
            return execute(case, &machine);
        }
        let place = match side {
            Side::Theirs => &mut self.theirs,
            Side::Ours => &mut self.ours,
        };
        let mut machine = match place.take() {
            Some(machine) => machine,
            None => {
                let mut machine = Machine::new(side, &[])?;
                machine.start(&[])?;
                machine
            }
        };
        let outcome = execute(case, &machine)?;
        machine.tidy();
        // A machine on which a case failed is not used again.
        if outcome.end == End::Exit(0) && machine.alive() {
            *place = Some(machine);
        }
        Ok(outcome)
    }
}

/// Returns the program that runs a case, and its arguments. If the case is compiled, this program is `compiled`.
pub fn program_of(case: &Case, side: Side, compiled: PathBuf) -> (PathBuf, Vec<PathBuf>) {
    match case.kind {
        Kind::Program | Kind::Fortran => (compiled, Vec::new()),
        Kind::Console => (side.programs().join("pvm"), Vec::new()),
        Kind::Script => (PathBuf::from("/bin/sh"), vec![case.source.clone()]),
    }
}

fn execute(case: &Case, machine: &Machine) -> Result<Outcome> {
    let (program, arguments) = program_of(case, machine.side, compile::program(case, machine.side));
    let mut command = machine.command(&program);
    command.args(arguments);
    let input = match case.kind {
        Kind::Console => Stdio::from(console_input(case, machine.folder())?),
        _ => Stdio::null(),
    };
    let path = machine.folder().join("output");
    let output = File::create(&path)?;
    command.envs(case.env.iter().map(|(name, value)| (name, value)));
    // The console buffers its two output streams differently, so the order of lines in a common file would mean
    // nothing.
    let errors = match case.kind {
        Kind::Console => File::create(machine.folder().join("errors"))?,
        _ => output.try_clone()?,
    };
    if case.kind == Kind::Fortran {
        // Without this variable, the program's output would appear after the library's.
        command.env("GFORTRAN_UNBUFFERED_PRECONNECTED", "y");
    }
    command.stdin(input).stderr(errors).stdout(output);
    let end = wait(&mut command, case.timeout).with_context(|| case.name.clone())?;
    let mut text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
    if let Ok(errors) = std::fs::read_to_string(machine.folder().join("errors")) {
        text = text + "---- standard error\n" + &errors;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if case.log {
        text += &machine.log();
    }
    text = normalise::text(&text, machine);
    if case.unordered {
        text = normalise::sorted(&text);
    }
    text += &end.last_line();
    Ok(Outcome { end, text })
}

/// Copies a console script without its directives to a file in `folder`, and opens the copy.
pub fn console_input(case: &Case, folder: &Path) -> Result<File> {
    let text = std::fs::read_to_string(&case.source)?;
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("#@ ")).collect();
    let path = folder.join("input");
    std::fs::write(&path, lines.join("\n") + "\n")?;
    Ok(File::open(path)?)
}
