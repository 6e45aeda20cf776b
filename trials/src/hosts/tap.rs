//! Programs that connect hosts by TAP devices; their source is in `tests/hosts`.

use crate::common::{root, sh};
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// Returns the path of a compiled program.
pub fn program(name: &str) -> PathBuf {
    root().join("target/hosts").join(name)
}

/// Compiles the program `NAME.c` of a folder in `tests/hosts`.
pub fn compile(folder: &str, name: &str) -> Result<()> {
    std::fs::create_dir_all(root().join("target/hosts"))?;
    let source = root().join("tests/hosts").join(folder).join(name).with_extension("c");
    sh(Command::new("cc").args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-o"]).arg(program(name)).arg(source))
}

/// Returns why no such program can run here; `None` if one can.
pub fn obstacle() -> Option<String> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/net/tun");
    device.err().map(|error| format!("/dev/net/tun: {error}"))
}
