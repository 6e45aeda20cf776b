//! Runs clippy in one known version. If another version is installed instead, its warnings are only shown, and fail no
//! test.
use crate::build::target_directory;
use crate::common::{Checks, cargo, output};
use crate::debian_rust::{self, CLIPPY};
use crate::lint::has;
use crate::python;
use anyhow::{Result, ensure};
use std::process::Command;

const CHECK: &str = "clippy has nothing to say";

/// Runs the clippy of [`CLIPPY`]. If it is missing, runs the installed clippy.
pub fn check(checks: &mut Checks) {
    if CLIPPY.is_there() {
        checks.check(CHECK, decide());
    } else if has("clippy") {
        checks.check("clippy of another version reports no error", warn());
    } else {
        checks.skip(CHECK, "it is not installed");
    }
}

/// Compiles what [`check`] needs.
pub fn compile() -> Result<()> {
    if CLIPPY.is_there() { decide() } else { Ok(()) }
}

/// Runs the clippy of Debian's Rust with the installed cargo; a warning is an error.
fn decide() -> Result<()> {
    decide_on(&["--workspace"])?;
    decide_on(&["--manifest-path", python::MANIFEST])
}

fn decide_on(what: &[&str]) -> Result<()> {
    let driver = debian_rust::folder().join("clippy-driver");
    debian_rust::write_command(&driver, &debian_rust::with_libraries("usr/bin/clippy-driver"))?;
    let mut command = debian_rust::cargo()?;
    command.args(["check", "--quiet", "--all-targets"]).args(what).env("RUSTC_WORKSPACE_WRAPPER", driver);
    // `cargo clippy` passes its arguments to the driver in this variable.
    command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    output(&mut command).map(drop)
}

/// Runs the installed clippy and shows its warnings; only lints that the project denies are errors.
fn warn() -> Result<()> {
    for what in [["--workspace"].as_slice(), &["--manifest-path", python::MANIFEST]] {
        let mut command = cargo();
        command.args(["clippy", "--quiet", "--all-targets"]).args(what).env("CARGO_TARGET_DIR", target_directory()?);
        ensure!(Command::status(&mut command)?.success(), "see above");
    }
    Ok(())
}
