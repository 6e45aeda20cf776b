//! What several commands need: paths, child processes.
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

/// The root of the source tree.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root").to_path_buf()
}

/// The distribution tree that `build` makes: bin, lib, include, share.
pub fn dist() -> PathBuf {
    root().join("target/dist")
}

/// Runs a command, shows what it prints, and fails when it fails.
pub fn sh(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
