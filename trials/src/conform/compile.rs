//! Compiles the C and Fortran cases.
//!
//! They are compiled with Debian's headers and linked to Debian's libraries, so that the same program runs on both
//! systems; only `LD_LIBRARY_PATH` differs. Fortran programs that are linked in this way contain PVM's wrappers. To
//! test hpvm's wrappers, each Fortran case is compiled a second time, with our header and libraries.

use super::case::{Case, Kind};
use super::machine::{self, Side};
use crate::{common, debian_pvm};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Returns the folder of the compiled cases, which is on the daemons' search path.
pub fn folder() -> PathBuf {
    common::root().join("target/conform/bin")
}

/// Returns the folder of the cases that are compiled with our own header and libraries.
fn own_folder() -> PathBuf {
    common::root().join("target/conform/own")
}

/// Returns the program of a case on one side.
pub fn program(case: &Case, side: Side) -> PathBuf {
    let folder = if case.own && side == Side::Ours { own_folder() } else { folder() };
    folder.join(case.source.file_stem().unwrap_or_default())
}

/// Compiles every case whose program is older than its source.
pub fn all(cases: &[Case]) -> Result<()> {
    std::fs::create_dir_all(folder())?;
    let helpers = common::root().join("tests/conform");
    for case in cases.iter().filter(|case| !case.own) {
        let mut command = match case.kind {
            Kind::Program => c(&helpers),
            Kind::Fortran => fortran(&helpers, Side::Theirs),
            Kind::Console | Kind::Script => continue,
        };
        let libraries: &[&str] = match case.kind {
            Kind::Fortran => &["-lfpvm3", "-lgpvm3", "-lpvm3"],
            _ => &["-Wl,--as-needed", "-lgpvm3", "-Wl,--no-as-needed", "-lpvm3", "-lpthread"],
        };
        let inputs = ["case.h", "group.h", "order.h", "tasker.h", "trace.h", "case.f"].map(|name| helpers.join(name));
        make(command.arg(&case.source).args(libraries), &case.source, &program(case, Side::Theirs), &inputs)?;
    }
    Ok(())
}

/// Compiles the cases that use our own header and libraries, which must have been built before.
pub fn own(cases: &[Case]) -> Result<()> {
    std::fs::create_dir_all(own_folder())?;
    let helpers = common::root().join("tests/conform");
    let (header, lib) = (Side::Ours.headers().join("fpvm3.h"), machine::ours().join("lib"));
    let inputs = [helpers.join("case.f"), header, lib.join("libpvm3.so.3"), lib.join("libfpvm3.a")];
    for case in cases.iter().filter(|case| case.own) {
        let mut command = fortran(&helpers, Side::Ours);
        command.arg(&case.source).arg(format!("-L{}", lib.display())).args(["-lfpvm3", "-lpvm3"]);
        make(&mut command, &case.source, &program(case, Side::Ours), &inputs)?;
    }
    Ok(())
}

pub fn c(helpers: &Path) -> Command {
    let mut command = Command::new("cc");
    debian_pvm::compiles(&mut command).args(["-std=gnu11", "-O1", "-Wall", "-Wno-unused-function", "-I"]).arg(helpers);
    command
}

/// Returns the Fortran compiler with options for old programs: these may pass arguments of different types to the same
/// procedure.
fn fortran(helpers: &Path, side: Side) -> Command {
    let mut command = Command::new("gfortran");
    debian_pvm::compiles(&mut command)
        .args(["-std=legacy", "-w", "-O1", "-I"])
        .arg(side.headers())
        .arg(helpers.join("case.f"));
    command
}

/// Runs the compiler if `target` is older than one of its inputs, or than a case that the source includes.
pub fn make(command: &mut Command, source: &Path, target: &Path, inputs: &[PathBuf]) -> Result<()> {
    let included = included_cases(source);
    let newest = inputs.iter().chain(&included).map(|path| changed(path)).max().flatten().max(changed(source));
    if changed(target) > newest {
        return Ok(());
    }
    let output = command.arg("-o").arg(target).output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{}:\n{}", source.display(), String::from_utf8_lossy(&output.stderr));
    }
    print!("{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Returns the cases that a case includes, in the same folder.
fn included_cases(source: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(source).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix(".c\""));
    names.map(|name| source.with_file_name(format!("{name}.c"))).collect()
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}
