//! `cargo xtask release`: checks that the tree is ready for a release, makes the files with their checksums, and sets the
//! tag. Nothing is pushed: whoever releases does that, with what this command has made.
use super::{binary, debian, source, versions};
use crate::common::{output, root, sh};
use crate::{build, common, python};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What must have passed on the commit; too long to be repeated here.
const TESTS: &[&str] = &["make test", "cargo xtask packages", "cargo xtask bench"];

/// Something that must be so before a release.
struct Condition {
    name: &'static str,
    /// Whoever releases does it when the time has come. So it is no fault of a tree that is not to be released yet.
    is_last_step: bool,
    check: fn(&str) -> Result<()>,
}

const fn always(name: &'static str, check: fn(&str) -> Result<()>) -> Condition {
    Condition { name, is_last_step: false, check }
}

const fn at_last(name: &'static str, check: fn(&str) -> Result<()>) -> Condition {
    Condition { name, is_last_step: true, check }
}

const CONDITIONS: [Condition; 6] = [
    always("every file names the same version", |_| versions::agree()),
    always("debian/control is sound", |_| debian::control_is_sound(&versions::debian()?)),
    always("the source tarball has no junk", |_| source::no_junk()),
    at_last("nothing is uncommitted", is_clean),
    at_last("CHANGELOG.md names the version", is_in_changelog),
    at_last("the tag is new", tag_is_new),
];

/// What was found by the checks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Readiness {
    /// The last steps that are still to be done, as texts.
    to_do: Vec<String>,
    faults: usize,
}

impl Readiness {
    /// Checks everything, and prints a line for each condition.
    fn of(conditions: &[Condition], version: &str) -> Readiness {
        let mut found = Readiness::default();
        for condition in conditions {
            let Err(error) = (condition.check)(version) else {
                println!("ok         {}", condition.name);
                continue;
            };
            if condition.is_last_step {
                println!("to be done {}: {error:#}", condition.name);
                found.to_do.push(format!("{error:#}"));
            } else {
                println!("FAILED     {}: {error:#}", condition.name);
                found.faults += 1;
            }
        }
        found
    }

    /// Returns an error if the tree cannot be released, or, for a dry run, if it has a fault.
    fn verdict(&self, is_dry: bool) -> Result<()> {
        ensure!(self.faults == 0, "{} of the checks above failed", self.faults);
        ensure!(is_dry || self.to_do.is_empty(), "not ready for a release: {}", self.to_do.join("; "));
        Ok(())
    }
}

/// Runs the command: `release [--dry-run]`. A dry run does everything but the tag, also on a tree for which the last
/// steps before a release are still to be done; it names these steps.
pub fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_dry = match words[..] {
        [] => false,
        ["--dry-run"] | ["--dry-run", build::AS_IT_IS] => true,
        _ => bail!("usage: cargo xtask release [--dry-run [{}]]", build::AS_IT_IS),
    };
    let version = versions::version()?;
    let tag = format!("v{version}");
    let readiness = Readiness::of(&CONDITIONS, &version);
    readiness.verdict(is_dry)?;
    build::build_unless_told(arguments)?;
    let made = root().join("target/packages").join(&tag);
    make(&made, &version, is_dry)?;
    println!("\nmade in {}:\n{}", made.display(), fs::read_to_string(made.join("SHA256SUMS"))?);
    println!("these must have passed on this commit: {}", TESTS.join(", "));
    if is_dry {
        println!("the tag would be {tag}; without --dry-run, it is set if nothing is to be done");
        readiness.to_do.iter().for_each(|step| println!("to be done before: {step}"));
    } else {
        source::git(&["tag", "--annotate", "--message", &format!("hpvm {version}"), &tag])?;
        println!("set the tag {tag}; to publish: git push origin {tag}, and upload the files");
    }
    Ok(())
}

/// Makes the tarballs, the wheel, the Spack recipe with the checksum of the source tarball, and the list of checksums.
fn make(to: &Path, version: &str, is_dry: bool) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    let tarball = source::make(to, version)?;
    let mut files = vec![tarball.clone(), binary::make(to, version)?, recipe(to, &tarball, version)?];
    files.extend(wheel(to, is_dry)?);
    let names = files.iter().filter_map(|path| path.file_name());
    let sums = common::output(Command::new("sha256sum").args(names).current_dir(to))?;
    fs::write(to.join("SHA256SUMS"), sums)?;
    sh(Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(to))
}

/// Makes the wheel for older systems. A dry run goes on without it, for example where its tools cannot be had.
fn wheel(to: &Path, is_dry: bool) -> Result<Option<PathBuf>> {
    match python::wheel(python::For::OlderSystems) {
        Ok(made) => {
            let name = made.file_name().context("a wheel has a name")?;
            fs::copy(&made, to.join(name))?;
            Ok(Some(to.join(name)))
        }
        Err(error) if !is_dry => Err(error.context("cargo xtask wheel --portable")),
        Err(error) => {
            println!("NOT MADE: the wheel (cargo xtask wheel --portable): {error:#}");
            Ok(None)
        }
    }
}

/// Writes the Spack recipe with the checksum, which the recipe in the tarball itself cannot have. Returns its path.
pub fn recipe(to: &Path, tarball: &Path, version: &str) -> Result<PathBuf> {
    let sum = output(Command::new("sha256sum").arg(tarball))?;
    let sum = sum.split(' ').next().context("sha256sum prints a sum")?;
    let text = fs::read_to_string(root().join("dist/spack/package.py"))?;
    let (old, new) = (format!("    version(\"{version}\")"), format!("    version(\"{version}\", sha256=\"{sum}\")"));
    ensure!(text.contains(&old), "dist/spack/package.py has no line {old:?}");
    let path = to.join("package.py");
    fs::write(&path, text.replace(&old, &new))?;
    Ok(path)
}

fn is_clean(_version: &str) -> Result<()> {
    let changed = source::git(&["status", "--porcelain"])?;
    ensure!(changed.is_empty(), "commit or remove: {}", changed.split_whitespace().collect::<Vec<_>>().join(" "));
    Ok(())
}

fn is_in_changelog(version: &str) -> Result<()> {
    let newest = versions::newest_change()?;
    ensure!(newest.starts_with(version), "replace \"## {newest}\" in CHANGELOG.md by \"## {version} (DATE)\"");
    Ok(())
}

fn tag_is_new(version: &str) -> Result<()> {
    let tag = format!("v{version}");
    ensure!(source::git(&["tag", "--list", &tag])?.is_empty(), "{tag} exists: raise the version in Cargo.toml");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Condition = always("good", |_| Ok(()));
    const LATER: Condition = at_last("later", |version| bail!("write {version}"));
    const BAD: Condition = always("bad", |_| bail!("two versions"));

    #[test]
    fn a_dry_run_goes_on_where_only_the_last_steps_are_missing() {
        let found = Readiness::of(&[GOOD, LATER], "1.2.3");
        assert_eq!(found, Readiness { to_do: vec!["write 1.2.3".into()], faults: 0 });
        assert!(found.verdict(true).is_ok());
        assert!(format!("{:#}", found.verdict(false).unwrap_err()).contains("write 1.2.3"));
    }

    #[test]
    fn a_fault_stops_a_dry_run_too() {
        let found = Readiness::of(&[BAD, GOOD], "1.2.3");
        assert!(found.verdict(true).is_err() && found.verdict(false).is_err());
        assert!(Readiness::of(&[GOOD], "1.2.3").verdict(false).is_ok());
    }
}
