//! Packages: the source tarball, the tarball of binaries, the Debian packages, and a release of them. `docs/packaging.md`
//! describes them for whoever installs or makes them.
mod binary;
mod checks;
mod debian;
mod fresh;
pub mod notices;
pub mod release;
mod source;
mod versions;

use crate::common::{Checks, in_path, output, root};
use crate::counts::Counts;
use crate::{build, debian_pvm};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory for tarballs and packages.
fn made() -> PathBuf {
    root().join("target/packages")
}

/// Runs `dist-tarball`.
pub fn run_dist_tarball(_arguments: &[String]) -> Result<()> {
    println!("{}", source::make(&made(), &versions::version()?)?.display());
    Ok(())
}

/// Runs `binary-tarball`.
pub fn run_binary_tarball(arguments: &[String]) -> Result<()> {
    build::build_unless_told(arguments)?;
    println!("{}", binary::make(&made(), &versions::version()?)?.display());
    Ok(())
}

/// Runs `packages`: makes everything from the source tarball in a fresh system without a network, and tries it.
pub fn run(arguments: &[String]) -> Result<()> {
    build::build_unless_told(arguments)?;
    let mut counts = counted_short(&[])?;
    if !is_root()? {
        counts += Counts::skip("a fresh system needs root: sudo cargo xtask packages");
    } else {
        counts += fresh::counted()?;
    }
    counts.report()
}

fn is_root() -> Result<bool> {
    Ok(output(Command::new("id").arg("-u"))?.trim() == "0")
}

/// Tries a wheel in fresh systems with old and new versions of Python and glibc.
pub fn counted_wheel(wheel: &Path) -> Result<Counts> {
    if !is_root()? {
        return Ok(Counts::skip("the wheel in a fresh system needs root: sudo cargo xtask wheel --portable --test"));
    }
    let mut checks = Checks::default();
    checks.check("old and new systems with Python and pip alone install the wheel", fresh::try_wheel(wheel));
    Ok(checks.counts())
}

/// Runs the checks that need neither a second build nor a fresh system, as a part of `cargo xtask test`.
pub fn counted_short(_arguments: &[String]) -> Result<Counts> {
    let mut checks = Checks::default();
    checks.check("every file names the same version", versions::agree());
    if source::git(&["rev-parse", "HEAD"]).is_ok() {
        checks.check("the source tarball has no junk", source::no_junk());
    } else {
        checks.skip("the source tarball has no junk", "this is no clone");
    }
    checks.check("what is installed is removed, and nothing else", checks::install_and_uninstall());
    checks.check("an installation with libraries elsewhere works", checks::other_library_directory());
    checks.check("the tarball of binaries runs where it is unpacked", checks::binaries_run_elsewhere());
    let recipe = "the Spack recipe installs hpvm";
    if !in_path("python3") {
        checks.skip(recipe, "python3 is missing");
    } else if std::env::var_os("HPVM_DIST").is_some() {
        checks.skip(recipe, "it builds target/dist, and HPVM_DIST names another tree");
    } else {
        checks.check(recipe, checks::spack_recipe());
    }
    checks.check("each installed file is in one Debian package", debian::every_file_has_a_package());
    let theirs = "the Debian packages have the files of Debian's own";
    match debian_pvm::files("pvm") {
        Ok(_) => checks.check(theirs, debian::has_what_debian_has()),
        Err(_) => checks.skip(theirs, "Debian's PVM is missing (see `cargo xtask setup test`)"),
    }
    checks.check("debian/control is sound", versions::debian().and_then(|version| debian::control_is_sound(&version)));
    Ok(checks.counts())
}
