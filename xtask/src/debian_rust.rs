//! The Rust of Debian 12: version 1.85, the oldest with which hpvm can be built. It is used where exactly one known
//! compiler is needed, and for parts that an installed Rust may lack: Rust's standard library for other machines, the
//! source of that library, and sanitizers of the same LLVM version.
//!
//! It is unpacked to a folder of its own, since it would conflict with other versions.

use crate::build::target_directory;
use crate::common::{self, output, root};
use crate::debian;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages that the compiler needs from the system's package manager.
pub const PACKAGES: [&str; 3] = ["libedit2", "libxml2", "libz3-4"];
/// The compiler, and its standard library for this machine.
const COMPILER: [&str; 4] =
    ["rustc-web:amd64", "libstd-rust-web-1.85:amd64", "libllvm19:amd64", "libstd-rust-web-dev:amd64"];

/// The clippy whose warnings are errors: that of the oldest version of Rust with which hpvm can be built.
pub const CLIPPY: Part = Part { name: "clippy", packages: &["rust-web-clippy:amd64"] };
/// The sanitizers' runtime libraries, the symbolizer, and the source of Rust's standard library.
pub const SANITIZERS: Part =
    Part { name: "sanitize", packages: &["libclang-rt-19-dev:amd64", "llvm-19:amd64", "rust-web-src:all"] };
/// Rust's standard library for each machine of `cargo xtask unlike`.
pub const OTHER_MACHINES: Part = Part {
    name: "unlike",
    packages: &["libstd-rust-web-dev:arm64", "libstd-rust-web-dev:i386", "libstd-rust-web-dev:s390x"],
};

/// Paths that are not unpacked. Of Rust's source, only the standard library is needed; the remainder takes a third of a
/// gigabyte.
const UNWANTED: [&str; 3] = ["./usr/src/*/compiler", "./usr/src/*/src", "./usr/share"];

/// Packages that a command needs in addition to the compiler.
pub struct Part {
    /// The name of the command that needs the packages.
    pub name: &'static str,
    /// Debian's packages.
    pub packages: &'static [&'static str],
}

impl Part {
    /// Returns whether the packages and the compiler have been unpacked.
    pub fn is_there(&self) -> bool {
        fs::read_to_string(self.mark()).is_ok_and(|there| there == self.packages.join(" "))
    }

    /// Returns the path of the file that lists what has been unpacked for this part.
    fn mark(&self) -> PathBuf {
        folder().join(format!("{}-is-there", self.name))
    }
}

/// Returns the folder of the unpacked packages.
pub fn folder() -> PathBuf {
    root().join("target/rust")
}

/// Returns the path of the compiler's command.
pub fn rustc() -> PathBuf {
    folder().join("rustc")
}

/// Returns the cargo that runs this command, with this compiler and its rustdoc. It checks, and builds nothing that runs.
pub fn cargo() -> Result<Command> {
    let rustdoc = folder().join("rustdoc");
    write_command(&rustdoc, &with_sysroot("usr/bin/rustdoc"))?;
    let mut command = common::cargo();
    // The target directory is separate, since different compilers would remove each other's files.
    command.env("RUSTC", rustc()).env("RUSTDOC", rustdoc).env("CARGO_TARGET_DIR", target_directory()?.join("clippy"));
    // Some crates compile C, which nobody runs.
    command.env("CFLAGS", "-O0");
    Ok(command)
}

/// Downloads and unpacks the compiler and these parts, unless that has been done.
pub fn fetch(parts: &[&Part]) -> Result<()> {
    let lacking: Vec<&&Part> = parts.iter().filter(|part| !part.is_there()).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    println!("fetching Debian's Rust");
    let mut packages: Vec<&str> = lacking.iter().flat_map(|part| part.packages).copied().collect();
    if !rustc().exists() {
        packages.extend(COMPILER);
    }
    debian::unpack(&packages, &folder(), &UNWANTED)?;
    write_command(&rustc(), &with_sysroot("usr/bin/rustc"))?;
    output(Command::new(rustc()).arg("-vV")).context("Debian's Rust does not run here")?;
    lacking.iter().try_for_each(|part| Ok(fs::write(part.mark(), part.packages.join(" "))?))
}

/// Returns a shell command that runs a program of the compiler, with its standard library.
fn with_sysroot(program: &str) -> String {
    format!("{} --sysroot '{}'", with_libraries(program), folder().join("usr").display())
}

/// Returns a shell command that runs a program from [`folder`] with the libraries from there.
pub fn with_libraries(program: &str) -> String {
    let (libraries, program) = (folder().join("usr/lib/x86_64-linux-gnu"), folder().join(program));
    format!("LD_LIBRARY_PATH='{}' exec '{}'", libraries.display(), program.display())
}

/// Writes a script that runs `line`, followed by the script's arguments.
pub fn write_command(path: &Path, line: &str) -> Result<()> {
    let text = format!("#!/bin/sh\n{line} \"$@\"\n");
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    // If this program is killed in the middle, no script is left that cannot be run.
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    Ok(fs::rename(&new, path)?)
}
