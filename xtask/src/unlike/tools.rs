//! The compilers, and what runs programs of other machines.
//!
//! Rust's own library for the other machines comes from Debian, in the version that is the least with which
//! hpvm can be built. It is unpacked to a folder of ours, for it would be in the way of other versions.

use super::kinds::{KINDS, folder};
use crate::common::{in_path, output, sh};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// From the system's package manager.
pub const PACKAGES: &[&str] = &[
    "gcc-aarch64-linux-gnu",
    "gcc-i686-linux-gnu",
    "gcc-s390x-linux-gnu",
    "libc6-dev-arm64-cross",
    "libc6-dev-i386-cross",
    "libc6-dev-s390x-cross",
    "libedit2",
    "libxml2",
    "libz3-4",
    "qemu-user-static",
];

/// To be unpacked: the compiler, what it needs, and the library for each machine.
const UNPACKED: &[&str] = &[
    "rustc-web:amd64",
    "libstd-rust-web-1.85:amd64",
    "libllvm19:amd64",
    "libstd-rust-web-dev:amd64",
    "libstd-rust-web-dev:arm64",
    "libstd-rust-web-dev:i386",
    "libstd-rust-web-dev:s390x",
];
/// Where Debian's packages for all machines are, those of the release that has these.
const SOURCE: &str =
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main\n";
const BINFMT: &str = "/proc/sys/fs/binfmt_misc";

/// The compiler, as a command.
pub fn rustc() -> PathBuf {
    folder().join("rust/rustc")
}

/// Why this cannot be run here.
pub fn obstacle() -> Option<String> {
    let advice = "(see `cargo xtask setup unlike`)";
    if std::env::consts::ARCH != "x86_64" {
        return Some("only x86-64 runs programs of i386".into());
    }
    for kind in KINDS.iter().filter(|kind| kind.target.is_some()) {
        let compiler = format!("{}-gcc", kind.tools);
        if !in_path(&compiler) {
            return Some(format!("`{compiler}` is missing {advice}"));
        }
        let emulator = kind.emulator.map(|name| format!("qemu-{name}-static"));
        if let Some(emulator) = emulator.filter(|emulator| !in_path(emulator)) {
            return Some(format!("`{emulator}` is missing {advice}"));
        }
    }
    (!rustc().exists()).then(|| format!("Rust for the other machines is missing {advice}"))
}

/// Fetches and unpacks what is unpacked, if that has not been done.
pub fn fetch() -> Result<()> {
    if rustc().exists() {
        return Ok(());
    }
    ensure!(in_path("apt-get") && in_path("dpkg-deb"), "Rust for other machines can only be had on a Debian system");
    println!("fetching Rust for other machines");
    let apt = folder().join("apt");
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(apt.join(part))?;
    }
    let place = apt.display();
    fs::write(apt.join("sources.list"), SOURCE)?;
    // Lists of its own, so that the system's package manager learns nothing of other machines.
    fs::write(
        apt.join("apt.conf"),
        format!(
            "APT::Architectures {{ \"amd64\"; \"arm64\"; \"i386\"; \"s390x\"; }};\nAPT::Sandbox::User \"root\";\n\
             Dir::Etc::SourceList \"{place}/sources.list\";\nDir::Etc::SourceParts \"/dev/null\";\n\
             Dir::State::Lists \"{place}/lists\";\nDir::Cache \"{place}/cache\";\n"
        ),
    )?;
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", apt.join("apt.conf")).current_dir(&apt).arg("-qq");
        command
    };
    sh(apt_get().arg("update"))?;
    sh(apt_get().arg("download").args(UNPACKED))?;
    let rust = folder().join("rust");
    for entry in fs::read_dir(&apt)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            sh(Command::new("dpkg-deb").arg("-x").arg(&path).arg(&rust))?;
        }
    }
    fs::remove_dir_all(&apt)?;
    let place = rust.display();
    // Last, since it says that all is there.
    super::build::write_command(
        &rustc(),
        &format!(
            "LD_LIBRARY_PATH='{place}/usr/lib/x86_64-linux-gnu' exec '{place}/usr/bin/rustc' --sysroot '{place}/usr'"
        ),
    )
}

/// Inside the sandbox: tells the kernel how programs of the other machines are run, where it does not know.
pub fn let_foreign_programs_run() -> Result<()> {
    for kind in KINDS {
        let program = kind.programs().join("pvmgetarch");
        let runs = || output(&mut Command::new(&program)).is_ok_and(|said| said.trim() == kind.arch);
        if runs() {
            continue;
        }
        let Some(emulator) = kind.emulator else { bail!("programs of {} cannot be run", kind.name) };
        register(emulator)?;
        ensure!(runs(), "programs of {} cannot be run", kind.name);
    }
    Ok(())
}

/// The namespace's own list of such programs; kernels before 6.7 have but one, which is not ours to change.
fn register(emulator: &str) -> Result<()> {
    if !std::path::Path::new(BINFMT).join("register").exists() {
        output(Command::new("mount").args(["-t", "binfmt_misc", "binfmt_misc", BINFMT]))
            .context("the kernel lets nobody say how programs of other machines are run")?;
    }
    let line = fs::read_to_string(format!("/usr/lib/binfmt.d/qemu-{emulator}.conf"))?;
    fs::write(format!("{BINFMT}/register"), line.trim()).context("binfmt_misc")
}
