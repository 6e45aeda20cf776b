//! Builds hpvm and its tests for each kind of host.

use super::kinds::{Extent, Kind, folder};
use crate::build::{SONAME, is_newer, shared_library};
use crate::common::{cargo, root, sh};
use crate::debian_rust::{self, write_command};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The name of the test program.
pub const TEST: &str = "unlike";

/// Builds everything except the tests, for all kinds of hosts except that of this machine.
pub fn all(extent: Extent) -> Result<()> {
    for (kind, _) in extent.foreign() {
        let libraries = format!("/usr/{}/lib", kind.tools);
        // The paths are stored in the program, so the program and everything that it starts find the libraries without
        // an environment variable.
        let line = format!(
            "exec {}-gcc -Wl,--dynamic-linker={libraries}/{} -Wl,--disable-new-dtags -Wl,-rpath,{libraries}",
            kind.tools, kind.loader
        );
        fs::create_dir_all(folder())?;
        write_command(&kind.compiler(), &line)?;
    }
    let mut build = cargo();
    build.args(["build", "--quiet", "--profile", "unlike"]);
    build.args(["--package", "libpvm3", "--package", "pvmd"]);
    if extent.consoles > 1 {
        build.args(["--package", "pvm-tools"]);
    }
    build.env("RUSTC", debian_rust::rustc()).env("CARGO_TARGET_DIR", folder().join("build")).env_remove("RUSTFLAGS");
    for (kind, target) in extent.foreign() {
        let variable = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
        build.env(variable, kind.compiler()).args(["--target", target]);
    }
    sh(&mut build)?;
    extent.foreign().try_for_each(|(kind, _)| library(kind))
}

/// Links the shared library, if it is older than its parts.
fn library(kind: &Kind) -> Result<()> {
    let archive = kind.programs().join("libpvm3.a");
    let lib = kind.libraries();
    fs::create_dir_all(&lib)?;
    if is_newer(&archive, &lib.join(SONAME)) {
        shared_library(&kind.compiler().display().to_string(), &archive, &lib)?;
    }
    let link = lib.join("libpvm3.so");
    if !link.exists() {
        std::os::unix::fs::symlink(SONAME, link)?;
    }
    Ok(())
}

/// Builds the test programs for all machines.
pub fn test_programs(extent: Extent) -> Result<()> {
    let sources = crate::build::files_of(&root().join("tests/unlike"))?;
    let header = root().join("include/pvm3.h");
    for kind in extent.kinds {
        let (bin, lib) = (kind.folder().join("bin"), kind.libraries());
        fs::create_dir_all(&bin)?;
        let program = bin.join(TEST);
        let mut inputs: Vec<PathBuf> = sources.clone();
        inputs.extend([header.clone(), lib.join(SONAME)]);
        if !inputs.iter().any(|input| is_newer(input, &program)) {
            continue;
        }
        let mut command = Command::new(kind.compiler());
        command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-I"]).arg(root().join("include"));
        command.args(sources.iter().filter(|path| path.extension().is_some_and(|extension| extension == "c")));
        command.arg("-L").arg(&lib).arg("-lpvm3").arg(format!("-Wl,-rpath,{}", lib.display()));
        sh(command.arg("-o").arg(&program)).with_context(|| format!("the tests for {}", kind.name))?;
    }
    Ok(())
}
