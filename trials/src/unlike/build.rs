//! Builds hpvm and its tests for each kind of host.

use super::kinds::{Extent, Kind, folder};
use crate::build::{FMP_SONAME, SONAME, fmp_shared_library, is_newer, shared_library};
use crate::common::{cargo, root, sh};
use crate::debian_rust::{self, write_command};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
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
    build.args(["--package", "libpvm3", "--package", "libfmp", "--package", "pvmd"]);
    if extent.consoles > 1 {
        build.args(["--package", "pvm-tools"]);
    }
    build.env("RUSTC", debian_rust::rustc()).env("CARGO_TARGET_DIR", folder().join("build")).env_remove("RUSTFLAGS");
    for (kind, target) in extent.foreign() {
        let variable = |name| format!("CARGO_TARGET_{}_{name}", target.to_uppercase().replace('-', "_"));
        build.env(variable("LINKER"), kind.compiler()).args(["--target", target]);
        if kind.emulator.is_some() {
            build.env(variable("RUSTFLAGS"), "--cfg emulated");
        }
    }
    sh(&mut build)?;
    extent.foreign().try_for_each(|(kind, _)| library(kind))
}

/// Links the shared libraries that are older than their parts.
fn library(kind: &Kind) -> Result<()> {
    let (lib, compiler) = (kind.libraries(), kind.compiler().display().to_string());
    fs::create_dir_all(&lib)?;
    type Link = fn(&str, &Path, &Path) -> Result<()>;
    let libraries: [(&str, &str, Link); 2] = [
        ("libpvm3", SONAME, |compiler, archive, lib| shared_library(compiler, archive, lib, &[])),
        ("libfmp", FMP_SONAME, fmp_shared_library),
    ];
    for (name, soname, link) in libraries {
        let archive = kind.programs().join(format!("{name}.a"));
        if is_newer(&archive, &lib.join(soname)) {
            link(&compiler, &archive, &lib)?;
        }
        let short = lib.join(format!("{name}.so"));
        if !short.exists() {
            std::os::unix::fs::symlink(soname, short)?;
        }
    }
    Ok(())
}

/// Builds the test programs for all machines.
pub fn test_programs(extent: Extent) -> Result<()> {
    let sources = crate::build::files_of(&root().join("tests/unlike"))?;
    let headers = ["pvm3.h", "fmp.h"].map(|name| root().join("include").join(name));
    for kind in extent.kinds {
        let (bin, lib) = (kind.folder().join("bin"), kind.libraries());
        fs::create_dir_all(&bin)?;
        let program = bin.join(TEST);
        let mut inputs: Vec<PathBuf> = sources.clone();
        inputs.extend(headers.clone());
        inputs.extend([lib.join(SONAME), lib.join(FMP_SONAME)]);
        if !inputs.iter().any(|input| is_newer(input, &program)) {
            continue;
        }
        let mut command = Command::new(kind.compiler());
        command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-I"]).arg(root().join("include"));
        command.args(sources.iter().filter(|path| path.extension().is_some_and(|extension| extension == "c")));
        command.arg("-L").arg(&lib).args(["-lfmp", "-lpvm3"]).arg(format!("-Wl,-rpath,{}", lib.display()));
        sh(command.arg("-o").arg(&program)).with_context(|| format!("the tests for {}", kind.name))?;
    }
    Ok(())
}
