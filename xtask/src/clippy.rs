//! Clippy, of one known version: what a later one finds besides is for people to read, and fails no test.
use crate::build::target_directory;
use crate::common::{Checks, cargo, output};
use crate::debian_rust::{self, Part};
use crate::lint::has;
use anyhow::{Result, ensure};
use std::process::Command;

/// The clippy that decides: of the least version of Rust with which hpvm can be built.
pub const PROGRAM: Part = Part { name: "clippy", packages: &["rust-web-clippy:amd64"] };

const CHECK: &str = "clippy has nothing to say";

/// Runs the one that decides, or where that cannot be had, the machine's.
pub fn check(checks: &mut Checks) {
    if PROGRAM.is_there() {
        checks.check(CHECK, decide());
    } else if has("clippy") {
        checks.check("clippy of another version finds nothing that is denied", warn());
    } else {
        checks.skip(CHECK, "it is not installed");
    }
}

/// Runs the clippy of Debian's Rust by the machine's cargo; a warning is an error.
fn decide() -> Result<()> {
    let driver = debian_rust::folder().join("clippy-driver");
    debian_rust::write_command(&driver, &debian_rust::with_libraries("usr/bin/clippy-driver"))?;
    let mut command = cargo();
    command.args(["check", "--quiet", "--workspace", "--all-targets"]);
    command.env("RUSTC", debian_rust::rustc()).env("RUSTC_WORKSPACE_WRAPPER", driver);
    // As `cargo clippy` passes arguments on.
    command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    // Another set of compiled files, or each run would throw away those of the other.
    command.env("CARGO_TARGET_DIR", target_directory()?.join("clippy"));
    output(&mut command).map(drop)
}

/// Runs the machine's and shows what it says; only what the project itself denies is an error.
fn warn() -> Result<()> {
    let status = Command::status(cargo().args(["clippy", "--quiet", "--workspace", "--all-targets"]))?;
    ensure!(status.success(), "see above");
    Ok(())
}
