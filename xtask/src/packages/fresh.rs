//! Builds the packages in a fresh Debian system, without a network, from the source tarball alone; then installs them
//! in another fresh system over Debian's PVM. The scripts are in `tests/packages`.
use super::{debian, made, source, versions};
use crate::common::{Checks, output, root, sh};
use crate::counts::Counts;
use crate::python;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release of the fresh systems: the last one with PVM.
const RELEASE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";
/// The releases on which the wheel is tried: the oldest that can be had, with Python 3.9, and [`RELEASE`].
const WHEEL_RELEASES: [&str; 2] = ["bullseye", RELEASE];

/// What the packages are built with.
const BUILD_PACKAGES: &str = "build-essential debhelper dh-python python3 dpkg-dev fakeroot lintian make gcc libc6-dev binutils cargo-web rustc-web";

/// Runs a command in another root, with /proc and /dev, in namespaces of its own.
const ENTER: &str = "root=$1; shift; mount -t proc proc \"$root/proc\"; mount --rbind /dev \"$root/dev\"; \
                     ip link set lo up; exec chroot \"$root\" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin \
                     HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \"$@\"";

/// Returns the parts of the archive of a release. The updates have a Rust that is new enough.
fn sources(release: &str) -> String {
    let updates = if release == RELEASE { format!("deb {MIRROR} {release}-updates main\n") } else { String::new() };
    format!("deb {MIRROR} {release} main\n{updates}deb {MIRROR}-security {release}-security main\n")
}

/// A Debian system below `target/packages/fresh`.
struct System(PathBuf);

impl System {
    /// Makes a system of Debian's smallest set of packages, or takes the one that an earlier run has made.
    fn base() -> Result<System> {
        System::base_of(RELEASE)
    }

    /// Does the same for another release of Debian.
    fn base_of(release: &str) -> Result<System> {
        let base = place().join(format!("base-{release}"));
        let new = base.with_extension("new");
        if !base.exists() {
            println!("making a fresh system of Debian {release}");
            remove(&new)?;
            fs::create_dir_all(place())?;
            output(Command::new("debootstrap").args(["--variant=minbase", release]).arg(&new).arg(MIRROR))?;
            fs::write(new.join("etc/apt/sources.list"), sources(release))?;
            // Proxies and the like are those of this computer.
            let settings = output(Command::new("apt-config").arg("dump"))?;
            let is_of_interest = |line: &&str| {
                let line = line.to_ascii_lowercase();
                line.starts_with("acquire::") && (line.contains("proxy") || line.contains("::check-"))
            };
            let settings = settings.lines().filter(is_of_interest).collect::<Vec<_>>().join("\n");
            fs::write(new.join("etc/apt/apt.conf.d/99-of-this-computer"), settings + "\n")?;
            fs::rename(&new, &base)?;
        }
        Ok(System(base))
    }

    /// Returns a copy, in place of an earlier copy of this name.
    fn copy(&self, name: &str) -> Result<System> {
        let to = place().join(name);
        remove(&to)?;
        sh(Command::new("cp").arg("--archive").arg(&self.0).arg(&to))?;
        for file in ["etc/hosts", "etc/resolv.conf"] {
            fs::copy(Path::new("/").join(file), to.join(file)).with_context(|| format!("cannot copy /{file}"))?;
        }
        fs::create_dir_all(to.join("build"))?;
        Ok(System(to))
    }

    /// Copies a file to /build.
    fn take(&self, file: &Path) -> Result<()> {
        let name = file.file_name().context("a file has a name")?;
        fs::copy(file, self.0.join("build").join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
        Ok(())
    }

    /// Runs a shell command in the system. Its output goes to a file, which an error names.
    fn run(&self, command: &str, with_network: bool, log: &str) -> Result<()> {
        let log = made().join(log);
        let file = fs::File::create(&log)?;
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--pid", "--fork", "--kill-child"]);
        if !with_network {
            unshare.arg("--net");
        }
        unshare.args(["sh", "-ec", ENTER, "sh"]).arg(&self.0).args(["sh", "-ec", command]);
        let status = unshare.stdout(file.try_clone()?).stderr(file).status()?;
        let last =
            || fs::read_to_string(&log).unwrap_or_default().lines().rev().take(12).collect::<Vec<_>>().join("\n");
        ensure!(status.success(), "{command}: {status}; {} ends, last line first:\n{}", log.display(), last());
        Ok(())
    }
}

fn place() -> PathBuf {
    made().join("fresh")
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Makes the portable wheel, and tries it ([`try_wheel`]).
pub fn wheel() -> Result<Counts> {
    let mut checks = Checks::default();
    let tried = python::wheel(python::For::OlderSystems).and_then(|wheel| try_wheel(&wheel));
    checks.check("a system with Python and pip alone installs the wheel and runs its demo", tried);
    Ok(checks.counts())
}

/// Makes the source tarball twice, and builds from it in a fresh system without a network.
pub fn build() -> Result<Counts> {
    let version = versions::version()?;
    let mut checks = Checks::default();
    let tarball = source::make(&made(), &version)?;
    checks.check("the same commit makes the same source tarball", is_reproducible(&tarball, &version));
    println!("building from {} in a fresh system without a network", tarball.display());
    let built = build_from(&tarball, &version);
    checks.check("the source tarball builds without a network, and lintian finds no error", built);
    Ok(checks.counts())
}

/// Tries the packages that [`build`] has made, in this run or in an earlier one.
pub fn trial() -> Result<Counts> {
    const NAME: &str = "the Debian packages take the place of Debian's own";
    let mut checks = Checks::default();
    let packages = built_packages()?;
    if packages.is_empty() {
        checks.skip(NAME, "they are not built: cargo xtask packages --only build");
    } else {
        checks.check(NAME, try_out(&packages));
    }
    Ok(checks.counts())
}

/// Returns the packages of the last successful build.
fn built_packages() -> Result<Vec<PathBuf>> {
    if made().exists() { debian::packages_in(&made()) } else { Ok(Vec::new()) }
}

fn is_reproducible(tarball: &Path, version: &str) -> Result<()> {
    let again = crate::scratch::directory("again")?;
    let second = source::make(again.path(), version)?;
    ensure!(fs::read(tarball)? == fs::read(second)?, "two tarballs of one commit differ");
    Ok(())
}

/// Builds the packages, and places them in [`made()`] once all are there.
fn build_from(tarball: &Path, version: &str) -> Result<()> {
    // If this build fails, no packages of an earlier commit are tried instead.
    built_packages()?.iter().try_for_each(fs::remove_file)?;
    let system = System::base()?.copy("builder")?;
    let install = format!("apt-get -qq update && apt-get -qq install -y --no-install-recommends {BUILD_PACKAGES}");
    system.run(&install, true, "builder.log")?;
    system.take(tarball)?;
    system.take(&root().join("tests/packages/build.sh"))?;
    system.run(&format!("sh /build/build.sh {version}"), false, "build.log")?;
    let packages = debian::packages_in(&system.0.join("build"))?;
    ensure!(packages.len() == debian::PACKAGES.len(), "not all packages: {packages:?}");
    for package in &packages {
        fs::copy(package, made().join(package.file_name().context("a package has a name")?))?;
    }
    remove(&system.0)
}

/// Installs the wheel in fresh systems that have Python and pip, and runs its demo without a network. Needs root.
pub fn try_wheel(wheel: &Path) -> Result<()> {
    for release in WHEEL_RELEASES {
        println!("trying the wheel in a fresh system of Debian {release}");
        let system = System::base_of(release)?.copy("wheel")?;
        let install = "apt-get -qq update && apt-get -qq install -y --no-install-recommends python3 python3-pip";
        system.run(install, true, "wheel.log")?;
        system.take(wheel)?;
        system.take(&root().join("tests/packages/wheel.sh"))?;
        system.run("sh /build/wheel.sh", false, "wheel.log").with_context(|| release.to_owned())?;
        remove(&system.0)?;
    }
    Ok(())
}

/// Installs the packages over Debian's own, runs Debian's programs, goes back, and purges.
fn try_out(packages: &[PathBuf]) -> Result<()> {
    println!("trying the packages in a fresh system, over Debian's PVM");
    let system = System::base()?.copy("trial")?;
    let others = ["tests/packages/trial.sh", "tests/conform/data/timetable.xml", "examples/roots/roots.c"];
    others.iter().try_for_each(|file| system.take(&root().join(file)))?;
    packages.iter().try_for_each(|package| system.take(package))?;
    system.run("apt-get -qq update", true, "trial.log")?;
    system.run(&format!("sh /build/trial.sh {}", versions::debian()?), true, "trial.log")?;
    remove(&system.0)
}
