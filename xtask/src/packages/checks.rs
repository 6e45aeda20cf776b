//! Checks of installations and tarballs that use the distribution tree as it is.
use super::{binary, versions};
use crate::common::{dist, output, root, sh};
use crate::install::{self, Layout};
use crate::{processes, scratch};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How long a job may take, in seconds.
const JOB_SECONDS_MAX: &str = "60";

/// Returns every path below a directory with its kind and mode, sorted.
fn listing(directory: &Path) -> Result<Vec<String>> {
    let text = output(Command::new("find").arg(directory).args(["-printf", "%P %y %m %l\n"]))?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    Ok(lines)
}

/// Returns a command that uses the installation at `prefix` and no other, with a machine in the directory `home`.
fn command(program: &Path, prefix: &Path, home: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg(JOB_SECONDS_MAX).arg(program);
    for name in ["PVMSOCK", "PVM_VMID", "PVM_ROOT", "PVM_DPATH", "PVM_PATH", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    let path = format!("{}:/usr/bin:/bin", prefix.join("bin").display());
    command.env("PATH", path).env("PVM_TMP", home).env("HOME", home).env("PVM_ALLOW_ROOT", "1").current_dir(home);
    command
}

/// Compiles the farm with the installation, and runs it with two workers. Nothing may be left running.
pub fn farm_runs(prefix: &Path, libraries: &str) -> Result<()> {
    let home = scratch::directory("packaged")?;
    let farm = home.path().join("farm");
    let mut cc = Command::new("cc");
    cc.arg("-O2").arg(root().join("examples/farm/farm.c")).arg("-o").arg(&farm);
    cc.arg("-I").arg(prefix.join("include")).arg("-L").arg(prefix.join(libraries)).arg("-lpvm3");
    sh(cc.arg(format!("-Wl,-rpath,{}", prefix.join(libraries).display())))?;
    let mut run = command(&prefix.join("bin/pvm"), prefix, home.path());
    let small = ["--workers", "2", "--samples", "1", "--size", "400x300"];
    let said = output(run.arg("run").arg(&farm).args(small))?;
    ensure!(said.contains("farm: 2 workers") && said.contains(" 0 workers lost"), "the farm said {said}");
    let left = processes::with_variable("PVM_TMP", home.path().as_os_str());
    ensure!(left.is_empty(), "left running: {left:?}");
    Ok(())
}

/// Checks that `uninstall` removes everything that `install` made, and nothing that was there before.
pub fn install_and_uninstall() -> Result<()> {
    let place = scratch::directory("prefix")?;
    let prefix = place.path().join("prefix");
    fs::create_dir_all(prefix.join("bin"))?;
    fs::write(prefix.join("bin/other"), "not hpvm's")?;
    let before = listing(place.path())?;
    let layout = Layout::new(&prefix, "lib")?;
    install::install(&dist(), &prefix, &layout)?;
    ensure!(prefix.join("share/man/man3/pvm_send.3").exists(), "the installation has no manual");
    // Twice: the second one replaces the first.
    install::install(&dist(), &prefix, &layout)?;
    install::uninstall(&prefix)?;
    let after = listing(place.path())?;
    ensure!(before == after, "before: {before:?}; after: {after:?}");
    Ok(())
}

/// Checks an installation whose libraries are in a directory such as Debian's.
pub fn other_library_directory() -> Result<()> {
    let place = scratch::directory("prefix")?;
    let libraries = "lib/some-linux-gnu";
    let layout = Layout::new(place.path(), libraries)?;
    install::install(&dist(), place.path(), &layout)?;
    let broken = output(Command::new("find").arg(place.path()).args(["-xtype", "l"]))?;
    ensure!(broken.is_empty(), "links to nothing: {broken}");
    for name in ["pvm3", "fmp"] {
        let pkg_config = place.path().join(libraries).join("pkgconfig").join(format!("{name}.pc"));
        let text = fs::read_to_string(&pkg_config)?;
        let up = text.lines().find_map(|line| line.strip_prefix("prefix=${pcfiledir}")).context("no prefix")?;
        let directory = pkg_config.parent().context("a file lies in a directory")?;
        let found = directory.join(up.trim_start_matches('/')).canonicalize()?;
        ensure!(found == place.path().canonicalize()?, "{name}.pc leads to {}", found.display());
    }
    farm_runs(place.path(), libraries)
}

/// Runs the Spack recipe's commands, by a script that takes the place of Spack.
pub fn spack_recipe() -> Result<()> {
    let place = scratch::directory("spack")?;
    let prefix = place.path().join("prefix");
    let mut python = Command::new("python3");
    python.current_dir(root()).args(["tests/packages/recipe.py", "dist/spack/package.py"]);
    output(python.arg(&prefix).arg(place.path()))?;
    ensure!(prefix.join("bin/pvm").exists(), "the recipe installs no bin/pvm");
    Ok(())
}

/// Makes the tarball of binaries, unpacks it in another place, moves it, and runs a job of it.
pub fn binaries_run_elsewhere() -> Result<()> {
    let place = scratch::directory("unpacked")?;
    let tarball = binary::make(place.path(), &versions::version()?)?;
    sh(Command::new("tar").arg("--extract").arg("--file").arg(&tarball).arg("--directory").arg(place.path()))?;
    let stem = tarball.display().to_string().replace(".tar.gz", "");
    let moved = place.path().join("moved here");
    fs::rename(PathBuf::from(stem), &moved)?;
    let (major, minor) = binary::oldest_glibc(&moved)?;
    let readme = fs::read_to_string(moved.join("README"))?;
    ensure!(readme.contains(&format!("{major}.{minor} or later")), "README does not name glibc {major}.{minor}");
    let licences = fs::read_to_string(moved.join("THIRD-PARTY-LICENSES.txt"))?;
    ensure!(licences.contains("\nrustls v") && licences.contains("Apache License"), "licences are missing");
    for file in listing(&moved)? {
        let name = file.split(' ').next().unwrap_or_default();
        ensure!(!name.ends_with(".new") && !name.contains("/."), "{name} does not belong into the tarball");
    }
    farm_runs(&moved, "lib")
}
