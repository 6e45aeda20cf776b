//! Programs and a library for systems that are older than this one: linked with the symbols of [`GLIBC`] by zig, which
//! has those of every version, and with zig's code for unwinding instead of gcc's.
use crate::build::{self, SONAME, place};
use crate::common::{cargo, output, root, sh};
use crate::python;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The oldest glibc with which they run: Debian 10, RHEL 8, Ubuntu 18.10 and later.
pub const GLIBC: &str = "2.28";
/// The processor, as cargo and as zig name it. Others have not been tried.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";
const ZIG_TARGET: &str = "x86_64-linux-gnu";

fn folder() -> Result<PathBuf> {
    Ok(build::target_directory()?.join("python/portable"))
}

/// Returns `PATH` with the environment in front that has zig.
pub fn path() -> Result<OsString> {
    let tools = folder()?.join("tools");
    python::environment(&tools, &root().join("python/requirements-portable.txt"))?;
    let now = std::env::var_os("PATH").unwrap_or_default();
    let all = [tools.join("bin")].into_iter().chain(std::env::split_paths(&now));
    std::env::join_paths(all).context("a directory of PATH has a colon")
}

/// Writes a program that is called as a C compiler is. Returns its path.
fn compiler() -> Result<PathBuf> {
    let (cc, new) = (folder()?.join("cc"), folder()?.join("cc.new"));
    let interpreter = folder()?.join("tools/bin/python");
    let script =
        format!("#!/bin/sh\nexec '{}' -m ziglang cc -target {ZIG_TARGET}.{GLIBC} \"$@\"\n", interpreter.display());
    fs::write(&new, script)?;
    place(&new, &cc, 0o755)?;
    Ok(cc)
}

/// Builds the programs and the library, in directories as in `target/dist`, whose headers are used. Returns the tree.
pub fn tree(dist: &Path) -> Result<PathBuf> {
    ensure!(std::env::consts::ARCH == "x86_64", "portable programs are made on x86-64 only");
    let path = path()?;
    let (tree, compiled) = (folder()?.join("tree"), folder()?.join("build"));
    let mut zigbuild = cargo();
    zigbuild.env("PATH", &path).args(["zigbuild", "--release", "--quiet", "--locked"]);
    zigbuild.arg("--target").arg(format!("{TARGET}.{GLIBC}")).arg("--target-dir").arg(&compiled);
    sh(zigbuild.args(["--package", "libpvm3", "--package", "pvmd", "--package", "pvm-tools"]))?;
    let built = compiled.join(TARGET).join("release");
    for directory in ["bin", "lib"] {
        fs::create_dir_all(tree.join(directory))?;
    }
    for program in ["pvm", "pvmd"] {
        let stripped = built.join(format!("{program}.stripped"));
        output(std::process::Command::new("strip").arg("-o").arg(&stripped).arg(built.join(program)))?;
        place(&stripped, &tree.join("bin").join(program), 0o755)?;
    }
    let cc = compiler()?.display().to_string();
    let archive = built.join("libpvm3.a");
    if build::is_newer(&archive, &tree.join("lib").join(SONAME)) {
        build::shared_library(&cc, &archive, &tree.join("lib"), &["-lunwind"])?;
    }
    build::compile_tasks_of_bench(&cc, &dist.join("include"), &tree)?;
    Ok(tree)
}
