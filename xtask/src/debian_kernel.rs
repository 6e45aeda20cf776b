//! Debian's kernel for an emulated computer, and a shell for it, which are unpacked and not installed.

use crate::common::{in_path, output, root, sh};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The packages that are installed: the emulator, the driver's part in libraries, and the loader of modules.
pub const NEEDED: &[&str] = &["ibverbs-providers", "iproute2", "kmod", "qemu-system-x86"];
/// The newest kernel depends on this package, and a shell that needs no libraries is in the other one. Both are unpacked
/// and not installed: an installed kernel would change how the computer starts.
const KERNEL: &str = "linux-image-amd64";
const SHELL: &str = "busybox-static";

/// Returns the folder of the unpacked packages.
pub fn folder() -> PathBuf {
    root().join("target/rdma")
}

/// Returns the path of the shell.
pub fn busybox() -> PathBuf {
    folder().join("bin/busybox")
}

/// Returns the release of the unpacked kernel; `None` if there is none.
pub fn release() -> Option<String> {
    let mut folders = fs::read_dir(folder().join("lib/modules")).ok()?;
    folders.next()?.ok()?.file_name().into_string().ok()
}

/// Downloads and unpacks the kernel and the shell, unless that has been done.
pub fn fetch() -> Result<()> {
    if busybox().exists() && release().is_some() {
        return Ok(());
    }
    ensure!(std::env::consts::ARCH == "x86_64", "only for x86-64");
    ensure!(in_path("apt-get") && in_path("dpkg-deb"), "Debian's packages need a Debian system");
    println!("fetching Debian's kernel, for tests; it is not installed");
    let _ = fs::remove_dir_all(folder());
    let packages = folder().join("packages");
    fs::create_dir_all(&packages)?;
    let depends = output(Command::new("apt-cache").args(["depends", KERNEL]))?;
    let kernel = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: ")).context("no Debian kernel")?;
    output(Command::new("apt-get").args(["download", kernel, SHELL]).current_dir(&packages))?;
    for entry in fs::read_dir(&packages)? {
        sh(Command::new("dpkg-deb").arg("-x").arg(entry?.path()).arg(folder()))?;
    }
    fs::remove_dir_all(&packages)?;
    let release = release().context("the kernel has no modules")?;
    sh(Command::new("depmod").arg("-b").arg(folder()).arg(release))
}
