//! Makes the programs of the cases, with our headers and libraries.
use super::case::Case;
use crate::common::{in_path, output, root};
use crate::conform::machine::ours;
use crate::side::Side;
use anyhow::{Result, bail};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns where the program of a case is.
pub fn program(case: &Case) -> PathBuf {
    root().join("target/why").join(&case.name)
}

/// Makes the program of a case. Returns what is lacking for it.
pub fn make(case: &Case) -> Result<Option<String>> {
    if case.needs_stacks {
        if let Some(lacking) = no_stacks() {
            return Ok(Some(lacking));
        }
    }
    let program = program(case);
    std::fs::create_dir_all(root().join("target/why"))?;
    let kind = case.source.extension().unwrap_or_default().to_string_lossy().into_owned();
    let (compiler, options, libraries): (&str, &[&str], &[&str]) = match kind.as_str() {
        "c" if in_path("cc") => return compile_c(&case.source, &program).map(|()| None),
        "c" => return Ok(Some("cc is missing".to_owned())),
        "f" => ("gfortran", &["-std=legacy", "-w", "-O1", "-g"], &["-lfpvm3", "-lgpvm3", "-lpvm3"]),
        "py" => {
            std::fs::write(&program, format!("#!/usr/bin/env python3\n{}", std::fs::read_to_string(&case.source)?))?;
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
            return Ok((!in_path("python3")).then(|| "python3 is missing".to_owned()));
        }
        other => bail!("{other}: no such kind of program"),
    };
    if !in_path(compiler) {
        return Ok(Some(format!("{compiler} is missing")));
    }
    compile(Command::new(compiler).args(options), &case.source, &program, libraries)?;
    Ok(None)
}

/// Returns why the stacks of tasks cannot be read here.
fn no_stacks() -> Option<String> {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let may_read = rustix::process::geteuid().is_root() || ["", "0"].contains(&scope.trim());
    match (cfg!(target_arch = "x86_64"), may_read) {
        (true, true) => None,
        (true, false) => Some("kernel.yama.ptrace_scope forbids to read the stacks of tasks".to_owned()),
        (false, _) => Some("stacks are read on x86-64 only".to_owned()),
    }
}

/// Makes a program in C.
pub fn compile_c(source: &Path, program: &Path) -> Result<()> {
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra"]);
    compile(&mut compiler, source, program, &["-lgpvm3", "-lpvm3", "-lpthread"])
}

fn compile(compiler: &mut Command, source: &Path, program: &Path, libraries: &[&str]) -> Result<()> {
    compiler.arg("-I").arg(Side::Ours.headers()).arg("-o").arg(program).arg(source);
    compiler.arg(format!("-L{}", ours().join("lib").display())).args(libraries);
    output(compiler)?;
    Ok(())
}
