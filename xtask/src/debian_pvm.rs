//! Debian's PVM 3.4.6 and programs that use it, with which hpvm is compared. They are unpacked and not installed, so
//! that no program finds Debian's library, and no shell finds Debian's console, in place of ours.

use crate::common::root;
use crate::debian;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::process::Command;

/// The packages that are unpacked.
const PACKAGES: [&str; 7] = ["libpvm3", "netpipe-pvm", "pvm", "pvm-dev", "pvm-examples", "slang-pvm", "tablix2"];
/// The packages that [`PACKAGES`] depend on; the system's package manager installs these.
pub const NEEDED: &[&str] = &["libgfortran5", "libslang2", "libtirpc3", "libx11-6", "libxaw7", "libxml2", "libxt6"];
/// The environment variable with the path that [`usr`] returns, for scripts and programs of the cases.
pub const VARIABLE: &str = "DEBIAN_PVM";

/// Returns the folder that corresponds to `/usr`: bin, include, lib, share.
pub fn usr() -> PathBuf {
    folder().join("usr")
}

fn folder() -> PathBuf {
    root().join("target/debian-pvm")
}

/// Returns the folder of the programs.
pub fn programs() -> PathBuf {
    usr().join("bin")
}

/// Returns the folder of the headers.
pub fn headers() -> PathBuf {
    usr().join("include")
}

/// Returns the folder of the libraries: `lib/x86_64-linux-gnu`, or that of another architecture.
pub fn libraries() -> PathBuf {
    let folders = fs::read_dir(usr().join("lib")).into_iter().flatten().flatten();
    let with_library = folders.map(|entry| entry.path()).find(|path| path.join("libpvm3.so.3").exists());
    with_library.unwrap_or_else(|| usr().join("lib"))
}

/// Returns the variables with which the programs find their libraries and `PVM_ROOT`. A case in which the library
/// itself starts a daemon needs an installed `/usr/bin/pvmd`: the library always starts the daemon at this path.
pub fn environment() -> [(String, String); 2] {
    let text = |path: PathBuf| path.display().to_string();
    [("PVM_ROOT".into(), text(usr().join("lib/pvm3"))), ("LD_LIBRARY_PATH".into(), text(libraries()))]
}

/// Lets a compiler find the headers and libraries. The compiler searches the folders on its command line first.
pub fn compiles(compiler: &mut Command) -> &mut Command {
    compiler.env("CPATH", headers()).env("LIBRARY_PATH", libraries())
}

/// Returns why hpvm cannot be compared with Debian's PVM here; `None` if it can.
pub fn obstacle() -> Option<String> {
    if !is_there() {
        return Some("Debian's PVM is missing (see `cargo xtask setup test`)".into());
    }
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_known = (name.as_str(), 0).to_socket_addrs().is_ok();
    (!is_known).then(|| {
        format!("the daemon of Debian's PVM does not start: {name}, the name of this host, is not in /etc/hosts")
    })
}

fn is_there() -> bool {
    fs::read_to_string(mark()).is_ok_and(|there| there == PACKAGES.join(" "))
}

fn mark() -> PathBuf {
    folder().join("is-there")
}

/// Returns the files of one of the packages.
pub fn files(package: &str) -> Result<Vec<PathBuf>> {
    let list = fs::read_to_string(debian::list(&folder(), package))
        .with_context(|| format!("{package}: `cargo xtask setup test`"))?;
    Ok(list.lines().map(|line| folder().join(line)).filter(|path| path.is_file()).collect())
}

/// Downloads and unpacks the packages, unless that has been done.
pub fn fetch() -> Result<()> {
    if is_there() {
        return Ok(());
    }
    println!("fetching Debian's PVM, for comparison; it is not installed");
    fs::create_dir_all(folder())?;
    debian::unpack(&PACKAGES, &folder(), &["./usr/share/man"])?;
    let said = Command::new(programs().join("pvmgetarch")).output()?;
    ensure!(said.status.success(), "Debian's PVM does not run here");
    fs::write(mark(), PACKAGES.join(" "))?;
    Ok(())
}

/// Replaces `$DEBIAN_PVM` in a case's directive with [`usr`].
pub fn expanded(text: &str) -> String {
    text.replace(&format!("${VARIABLE}"), &usr().display().to_string())
}
