//! The cross compilers, and the emulators of other machines.

use super::kinds::Extent;
use crate::common::{in_path, output};
use crate::debian_rust::OTHER_MACHINES;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::process::Command;

const BINFMT: &str = "/proc/sys/fs/binfmt_misc";

/// Returns why the tests cannot run here; `None` if they can.
pub fn obstacle(extent: Extent) -> Option<String> {
    let advice = "(see `cargo xtask setup unlike`)";
    if std::env::consts::ARCH != "x86_64" {
        return Some("only x86-64 runs programs of i386".into());
    }
    for (kind, _) in extent.foreign() {
        let compiler = format!("{}-gcc", kind.tools);
        if !in_path(&compiler) {
            return Some(format!("`{compiler}` is missing {advice}"));
        }
        let emulator = kind.emulator.map(|name| format!("qemu-{name}-static"));
        if let Some(emulator) = emulator.filter(|emulator| !in_path(emulator)) {
            return Some(format!("`{emulator}` is missing {advice}"));
        }
    }
    (!OTHER_MACHINES.is_there()).then(|| format!("Rust for the other machines is missing {advice}"))
}

/// Registers emulators for the other machines in the sandbox's kernel settings, if the kernel cannot run their
/// programs.
pub fn let_foreign_programs_run(extent: Extent) -> Result<()> {
    for (kind, _) in extent.foreign() {
        let program = kind.programs().join("pvmd");
        let runs = || output(Command::new(&program).arg("--version")).is_ok();
        if runs() {
            continue;
        }
        let Some(emulator) = kind.emulator else { bail!("programs of {} cannot be run", kind.name) };
        register(emulator)?;
        ensure!(runs(), "programs of {} cannot be run", kind.name);
    }
    Ok(())
}

/// Adds an entry to the user namespace's list of interpreters. Kernels before 6.7 have one list for all namespaces;
/// this function does not change that list.
fn register(emulator: &str) -> Result<()> {
    if !std::path::Path::new(BINFMT).join("register").exists() {
        output(Command::new("mount").args(["-t", "binfmt_misc", "binfmt_misc", BINFMT]))
            .context("the kernel does not permit registering interpreters of foreign programs")?;
    }
    let line = fs::read_to_string(format!("/usr/lib/binfmt.d/qemu-{emulator}.conf"))?;
    fs::write(format!("{BINFMT}/register"), line.trim()).context("binfmt_misc")
}
