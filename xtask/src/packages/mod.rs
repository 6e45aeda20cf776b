//! Packages: the source tarball, the tarball of binaries, the Debian packages, and a release of them. `docs/packaging.md`
//! describes them for whoever installs or makes them.
mod binary;
mod checks;
mod debian;
mod fresh;
pub mod notices;
pub mod release;
mod source;
mod spack;
mod versions;

use crate::common::{Checks, in_path, output, root};
use crate::counts::Counts;
use crate::{build, debian_pvm, failures};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

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

/// A part of `packages`: its name, whether it makes fresh systems, and the function that runs it.
type Part = (&'static str, bool, fn() -> Result<Counts>);

const PARTS: &[Part] = &[
    ("short", false, || counted_short(&[])),
    ("wheel", true, fresh::wheel),
    ("build", true, fresh::build),
    ("trial", true, fresh::trial),
    ("spack", false, spack::counted),
];

/// Runs `packages [--only PART]... [--as-it-is]`: makes everything from the source tarball in a fresh system without a
/// network, and tries it. If a part has failed, it can be repeated by itself.
pub fn run(arguments: &[String]) -> Result<()> {
    let parts = parts_of(arguments)?;
    build::build_unless_told(arguments)?;
    let mut total = Counts::default();
    for (name, needs_systems, part) in parts {
        let began = Instant::now();
        let obstacle = if *needs_systems { obstacle()? } else { None };
        let counts = match obstacle {
            Some(obstacle) => Counts::skip(format_args!("packages --only {name}: {obstacle}")),
            None => part().unwrap_or_else(|error| {
                failures::report(format_args!("FAILED   packages --only {name}: {error:#}"));
                Counts::one(false)
            }),
        };
        println!("== {name}: {counts} ({} s)", began.elapsed().as_secs());
        total += counts;
    }
    total.report()
}

/// Returns the parts that the command line names; all, if it names none.
fn parts_of(arguments: &[String]) -> Result<Vec<&'static Part>> {
    let names = || PARTS.iter().map(|part| part.0).collect::<Vec<_>>().join(", ");
    let mut chosen = Vec::new();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            build::AS_IT_IS => {}
            "--only" => {
                let part = words.next().and_then(|name| PARTS.iter().find(|part| part.0 == name));
                chosen.push(part.with_context(|| format!("--only needs the name of a part: {}", names()))?);
            }
            _ => bail!("usage: cargo xtask packages [--only PART]... [{}]; the parts are {}", build::AS_IT_IS, names()),
        }
    }
    Ok(if chosen.is_empty() { PARTS.iter().collect() } else { chosen })
}

/// Returns why this computer cannot make fresh systems.
fn obstacle() -> Result<Option<&'static str>> {
    Ok(if !is_root()? {
        Some("a fresh system needs root")
    } else if !in_path("debootstrap") {
        Some("debootstrap is missing: cargo xtask setup packages")
    } else {
        None
    })
}

fn is_root() -> Result<bool> {
    Ok(output(Command::new("id").arg("-u"))?.trim() == "0")
}

/// Tries a wheel in fresh systems with old and new versions of Python and glibc.
pub fn counted_wheel(wheel: &Path) -> Result<Counts> {
    if let Some(obstacle) = obstacle()? {
        return Ok(Counts::skip(format_args!("the wheel in fresh systems: {obstacle}")));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_part_can_be_run_by_itself() {
        let named = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            parts_of(&words).map(|parts| parts.iter().map(|part| part.0).collect::<Vec<_>>())
        };
        assert_eq!(named(&["--as-it-is"]).unwrap().len(), PARTS.len());
        assert_eq!(named(&["--only", "trial", "--only", "wheel"]).unwrap(), ["trial", "wheel"]);
        assert!(named(&["--only"]).is_err() && named(&["--only", "all"]).is_err() && named(&["trial"]).is_err());
    }
}
