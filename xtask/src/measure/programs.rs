//! The programs in C that measure (`bench`), compiled.
use crate::common::{dist, root, sh};
use crate::debian_pvm;
use anyhow::Result;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory of programs and results.
pub fn directory() -> PathBuf {
    root().join("target/bench")
}

/// Returns a compiler with options; the path of the program and the sources have to follow.
pub fn compiler(name: impl AsRef<OsStr>) -> Command {
    let mut compiler = Command::new(name);
    // -Wno-stringop-overflow suppresses a false warning about MPI_STATUSES_IGNORE in MPICH's header.
    compiler.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-stringop-overflow", "-o"]);
    compiler
}

/// Compiles `bench/limit.c`: two processes that share memory, without any message system.
pub fn limit_program() -> Result<()> {
    std::fs::create_dir_all(directory())?;
    sh(compiler("cc").arg(directory().join("limit")).arg(root().join("bench/limit.c")))
}

/// Compiles a program for PVM; with our headers and library, or with Debian's.
pub fn pvm_program(name: &str, source: &Path, is_ours: bool) -> Result<()> {
    let mut pvm = compiler("cc");
    debian_pvm::compiles(&mut pvm).arg(directory().join(name)).arg(source);
    if is_ours {
        pvm.arg("-I").arg(dist().join("include")).arg("-L").arg(dist().join("lib"));
    }
    // With Debian's PVM, the program also needs libgpvm3; our libpvm3 contains the group functions.
    sh(pvm.args(["-Wl,--no-as-needed", "-lgpvm3", "-lpvm3"]))
}

/// Compiles `bench/pvm_bench.c` with our library.
pub fn pvm_bench() -> Result<()> {
    pvm_program("pvm_bench", &root().join("bench/pvm_bench.c"), true)
}
