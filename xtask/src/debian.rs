//! Packages of Debian 12 that are unpacked to folders of their own and not installed: the system stays unchanged, and
//! no program finds them in place of ours.

use crate::common::{in_path, sh};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The release that has these packages. Later releases have no PVM, and their Rust is newer.
const SOURCE: &str =
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main\n";

/// Downloads packages and unpacks them below a folder, without the paths that match `unwanted`. [`list`] names the
/// files of each package.
pub fn unpack(packages: &[&str], folder: &Path, unwanted: &[&str]) -> Result<()> {
    ensure!(in_path("apt-get") && in_path("dpkg-deb"), "Debian's packages need a Debian system");
    let apt = folder.join("apt");
    download(&apt, packages)?;
    for entry in fs::read_dir(&apt)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            unpack_one(&path, folder, unwanted)?;
        }
    }
    Ok(fs::remove_dir_all(&apt)?)
}

/// Returns the path of the list of a package's unpacked files. Each line of the list is a path relative to the folder.
pub fn list(folder: &Path, package: &str) -> PathBuf {
    folder.join(format!("{package}.list"))
}

/// Downloads packages into a folder, with package lists of its own. So the system's package manager needs no setup for
/// other architectures, and installed versions (such as a later Rust) do not matter.
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

fn unpack_one(package: &Path, folder: &Path, unwanted: &[&str]) -> Result<()> {
    let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names = File::create(list(folder, name.split('_').next().unwrap_or_default()))?;
    let mut tar = Command::new("tar");
    tar.stdout(names)
        .args(["--extract", "--verbose", "--no-same-owner", "--anchored", "--no-wildcards-match-slash", "--directory"])
        .arg(folder);
    tar.args(unwanted.iter().map(|path| format!("--exclude={path}")));
    let mut content = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(package).stdout(Stdio::piped()).spawn()?;
    sh(tar.stdin(content.stdout.take().context("dpkg-deb has an output")?))?;
    ensure!(content.wait()?.success(), "{} cannot be unpacked", package.display());
    Ok(())
}
