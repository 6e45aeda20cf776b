//! Makes the programs of the cases, with our headers and libraries.
use super::case::Case;
use crate::common::output;
use crate::conform::machine::ours;
use crate::side::Side;
use anyhow::{Result, bail};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes the program of a case in that folder.
pub fn make(case: &Case, place: &Path) -> Result<PathBuf> {
    let program = place.join(&case.name);
    let kind = case.source.extension().unwrap_or_default().to_string_lossy().into_owned();
    let (compiler, options, libraries): (&str, &[&str], &[&str]) = match kind.as_str() {
        "c" => ("cc", &["-std=gnu11", "-O1", "-Wall", "-Wextra"], &["-lgpvm3", "-lpvm3", "-lpthread"]),
        "f" => ("gfortran", &["-std=legacy", "-w", "-O1"], &["-lfpvm3", "-lgpvm3", "-lpvm3"]),
        "py" => {
            std::fs::write(&program, format!("#!/usr/bin/env python3\n{}", std::fs::read_to_string(&case.source)?))?;
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
            return Ok(program);
        }
        other => bail!("{other}: no such kind of program"),
    };
    let mut command = Command::new(compiler);
    command.args(options).arg("-I").arg(Side::Ours.headers()).arg("-o").arg(&program).arg(&case.source);
    command.arg(format!("-L{}", ours().join("lib").display())).args(libraries);
    output(&mut command)?;
    Ok(program)
}
