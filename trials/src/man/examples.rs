//! Checks that each example compiles, and prints the output that its page shows.
use crate::common::{Checks, dist, output, root};
use crate::conform::machine::Side;
use crate::machine::{Machine, wait_until};
use crate::scratch;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use xtask::man::page::Page;

/// How long an example may run.
const RUN_TIME_MAX: Duration = Duration::from_secs(20);
/// The directory, below the home directory, in which a machine searches for programs to spawn.
const SPAWN_DIRECTORY: &str = "pvm3/bin";

/// Compiles all examples, since they may start one another, and runs the chosen ones.
pub fn check(checks: &mut Checks, pages: &[Page], chosen: &[&Page]) -> Result<()> {
    let programs = scratch::directory("examples")?;
    for page in pages {
        if let Some(source) = &page.example {
            let compiled = compile(source, programs.path());
            checks.check(&format!("page {}: its example compiles", page.name), compiled);
        }
    }
    for page in chosen {
        if let (Some(source), Some(wanted)) = (&page.example, &page.example_output) {
            let result = prints(source, wanted, programs.path());
            checks.check(&format!("page {}: its example prints what it says", page.name), result);
        }
        if let Some(source) = &page.fortran_example {
            let result = runs_in_fortran(source, &page.name, programs.path());
            checks.check(&format!("page {}: its example in Fortran compiles and runs", page.name), result);
        }
    }
    Ok(())
}

/// Returns the name of a program: `hello` if it begins with `/* hello.c: ...`.
fn program_name(source: &str) -> Result<&str> {
    let first = source.trim_start().lines().next().unwrap_or_default();
    let file = first.strip_prefix("/* ").and_then(|rest| rest.split_once(".c")).map(|(name, _)| name);
    file.filter(|name| !name.contains(' ')).context("an example begins with /* NAME.c: what it shows */")
}

fn compile(source: &str, directory: &Path) -> Result<()> {
    let name = program_name(source)?;
    let (file, program) = (directory.join(format!("{name}.c")), directory.join(name));
    ensure!(!program.exists(), "there is another {name}");
    fs::write(&file, source)?;
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror"]).arg(format!("-I{}", root().join("include").display()));
    let libraries: &[&str] = if source.contains("<fmp.h>") { &["-lfmp", "-lpvm3"] } else { &["-lpvm3"] };
    cc.arg(&file).arg(format!("-L{}", dist().join("lib").display())).args(libraries).arg("-o").arg(&program);
    output(&mut cc).map(drop)
}

/// Compiles an example in Fortran, and runs it to its end.
fn runs_in_fortran(source: &str, name: &str, directory: &Path) -> Result<()> {
    let (file, program) = (directory.join(format!("{name}.f")), directory.join(format!("{name}_f")));
    fs::write(&file, source)?;
    let mut gfortran = Command::new("gfortran");
    gfortran
        .args(["-Wall", "-Werror", "-Wno-unused"])
        .arg(format!("-I{}", root().join("include").display()))
        .arg(&file);
    gfortran.arg(format!("-L{}", dist().join("lib").display())).args(["-lfpvm3", "-lpvm3"]).arg("-o").arg(&program);
    output(&mut gfortran)?;
    run(&program, directory).map(drop)
}

/// Runs a program, and checks that it prints `wanted`.
fn prints(source: &str, wanted: &str, programs: &Path) -> Result<()> {
    let (text, complaints) = run(&programs.join(program_name(source)?), programs)?;
    ensure!(text == wanted.trim_start_matches('\n'), "it printed\n{text}{complaints}");
    Ok(())
}

/// Runs a program to its end on a machine of its own. Returns its standard output and standard error.
fn run(program: &Path, programs: &Path) -> Result<(String, String)> {
    let machine = Machine::start(Side::Ours, "example")?;
    let architecture = output(&mut machine.command(&dist().join("bin/pvmgetarch")))?;
    let spawned = machine.directory().join(SPAWN_DIRECTORY);
    fs::create_dir_all(&spawned)?;
    std::os::unix::fs::symlink(programs, spawned.join(architecture.trim()))?;
    let printed = machine.directory().join("printed");
    let complaints = machine.directory().join("complaints");
    let mut child = machine
        .command(program)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&printed)?)
        .stderr(fs::File::create(&complaints)?)
        .spawn()
        .context("cannot start it")?;
    let mut status = None;
    wait_until(RUN_TIME_MAX, || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    });
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    let (text, complaints) = (fs::read_to_string(&printed)?, fs::read_to_string(&complaints)?);
    match status {
        None => bail!("it does not end; it printed\n{text}{complaints}"),
        Some(status) => ensure!(status.success(), "{status}; it printed\n{text}{complaints}"),
    }
    Ok((text, complaints))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_says_its_name_first() {
        assert_eq!(program_name("/* send_hello.c: a greeting */\nint main;\n").expect("a name"), "send_hello");
        assert!(program_name("int main;\n").is_err());
    }
}
