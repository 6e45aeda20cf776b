//! Rust as Debian 12 has it: 1.85, the least with which hpvm can be built. It is for what must be compiled by
//! one known compiler, or needs parts that other compilers come without: Rust's own library for other
//! machines, that library's source, or sanitizers of the same LLVM.
//!
//! It is unpacked to a folder of ours, for it would be in the way of other versions.

use crate::common::{in_path, output, root, sh};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the compiler needs of the system's package manager.
pub const PACKAGES: [&str; 3] = ["libedit2", "libxml2", "libz3-4"];
/// The compiler, and its library for this machine.
const COMPILER: [&str; 4] =
    ["rustc-web:amd64", "libstd-rust-web-1.85:amd64", "libllvm19:amd64", "libstd-rust-web-dev:amd64"];
/// Where Debian's packages for all machines are, those of the release that has these.
const SOURCE: &str =
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main\n";

/// Of the compiler's source its library is wanted; the rest is a third of a gigabyte.
const UNWANTED: [&str; 3] = ["./usr/src/*/compiler", "./usr/src/*/src", "./usr/share"];

/// What is unpacked beside the compiler, and for what.
pub struct Part {
    /// The name of the command that needs it.
    pub name: &'static str,
    /// Debian's packages.
    pub packages: &'static [&'static str],
}

impl Part {
    /// Whether it is there, and the compiler.
    pub fn is_there(&self) -> bool {
        fs::read_to_string(self.mark()).is_ok_and(|there| there == self.packages.join(" "))
    }

    /// A file that says what is there.
    fn mark(&self) -> PathBuf {
        folder().join(format!("{}-is-there", self.name))
    }
}

/// Where it lies.
pub fn folder() -> PathBuf {
    root().join("target/rust")
}

/// The compiler, as a command.
pub fn rustc() -> PathBuf {
    folder().join("rustc")
}

/// Fetches and unpacks the compiler and those parts, if that has not been done.
pub fn fetch(parts: &[&Part]) -> Result<()> {
    let lacking: Vec<&&Part> = parts.iter().filter(|part| !part.is_there()).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    ensure!(in_path("apt-get") && in_path("dpkg-deb"), "Debian's Rust can only be had on a Debian system");
    println!("fetching Debian's Rust");
    let mut packages: Vec<&str> = lacking.iter().flat_map(|part| part.packages).copied().collect();
    if !rustc().exists() {
        packages.extend(COMPILER);
    }
    let apt = folder().join("apt");
    download(&apt, &packages)?;
    for entry in fs::read_dir(&apt)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            unpack(&path)?;
        }
    }
    fs::remove_dir_all(&apt)?;
    write_command(
        &rustc(),
        &format!("{} --sysroot '{}'", with_libraries("usr/bin/rustc"), folder().join("usr").display()),
    )?;
    output(Command::new(rustc()).arg("-vV")).context("Debian's Rust does not run here")?;
    lacking.iter().try_for_each(|part| Ok(fs::write(part.mark(), part.packages.join(" "))?))
}

/// Gets packages into a folder, with lists of its own: the system's package manager learns nothing of other
/// machines, and what is installed (a later Rust, perhaps) does not count.
fn download(apt: &Path, packages: &[&str]) -> Result<()> {
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(apt.join(part))?;
    }
    let place = apt.display();
    fs::write(apt.join("sources.list"), SOURCE)?;
    fs::write(apt.join("status"), "")?;
    fs::write(
        apt.join("apt.conf"),
        format!(
            "APT::Architectures {{ \"amd64\"; \"arm64\"; \"i386\"; \"s390x\"; }};\nAPT::Sandbox::User \"root\";\n\
             Dir::Etc::SourceList \"{place}/sources.list\";\nDir::Etc::SourceParts \"/dev/null\";\n\
             Dir::State::Lists \"{place}/lists\";\nDir::State::Status \"{place}/status\";\n\
             Dir::Cache \"{place}/cache\";\n"
        ),
    )?;
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", apt.join("apt.conf")).current_dir(apt).arg("-qq");
        command
    };
    sh(apt_get().arg("update"))?;
    sh(apt_get().arg("download").args(packages))
}

fn unpack(package: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--anchored", "--no-wildcards-match-slash", "--directory"]).arg(folder());
    tar.args(UNWANTED.map(|path| format!("--exclude={path}")));
    let mut content = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()).spawn()?;
    sh(tar.stdin(content.stdout.take().context("dpkg-deb has an output")?))?;
    ensure!(content.wait()?.success(), "{} cannot be unpacked", package.display());
    Ok(())
}

/// A line of shell that runs a program of the folder with the libraries there.
pub fn with_libraries(program: &str) -> String {
    let (libraries, program) = (folder().join("usr/lib/x86_64-linux-gnu"), folder().join(program));
    format!("LD_LIBRARY_PATH='{}' exec '{}'", libraries.display(), program.display())
}

/// A command that is another with something in front of its words.
pub fn write_command(path: &Path, line: &str) -> Result<()> {
    let text = format!("#!/bin/sh\n{line} \"$@\"\n");
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}
