//! `cargo xtask release`: checks that the tree is ready for a release, makes the tarballs with their checksums, and sets
//! the tag. Nothing is pushed: whoever releases does that, with what this command has made.
use super::{binary, debian, source, versions};
use crate::common::{Checks, output, root, sh};
use crate::{build, common};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What must have passed on the commit; too long to be repeated here.
const TESTS: &[&str] = &["make test", "cargo xtask packages", "cargo xtask bench"];

/// Runs the command: `release [--dry-run]`.
pub fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_dry = match words[..] {
        [] => false,
        ["--dry-run"] | ["--dry-run", build::AS_IT_IS] => true,
        _ => bail!("usage: cargo xtask release [--dry-run [{}]]", build::AS_IT_IS),
    };
    let version = versions::version()?;
    let tag = format!("v{version}");
    let mut checks = Checks::default();
    for (name, check) in [
        ("nothing is uncommitted", is_clean as fn(&str) -> Result<()>),
        ("every file names the same version", |_| versions::agree()),
        ("debian/control is sound", |_| debian::control_is_sound(&versions::debian()?)),
        ("CHANGELOG.md names the version", is_in_changelog),
        ("the tag is new", tag_is_new),
        ("the source tarball has no junk", |_| source::no_junk()),
    ] {
        let result = check(&version);
        println!("{} {name}", if result.is_ok() { "ok       " } else { "NOT READY" });
        checks.check(name, result);
    }
    build::build_unless_told(arguments)?;
    let made = root().join("target/packages").join(&tag);
    make(&made, &version)?;
    println!("\nmade in {}:\n{}", made.display(), fs::read_to_string(made.join("SHA256SUMS"))?);
    println!("these must have passed on this commit: {}", TESTS.join(", "));
    let counts = checks.counts();
    if is_dry {
        println!("the tag would be {tag}; without --dry-run, it is set if everything is ready");
    } else if counts.failed == 0 {
        source::git(&["tag", "--annotate", "--message", &format!("hpvm {version}"), &tag])?;
        println!("set the tag {tag}; to publish: git push origin {tag}, and upload the files");
    }
    counts.report()
}

/// Makes the tarballs, the Spack recipe with the checksum of the source tarball, and the list of checksums.
fn make(to: &Path, version: &str) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    let tarball = source::make(to, version)?;
    let files = [tarball.clone(), binary::make(to, version)?, recipe(to, &tarball, version)?];
    let names = files.iter().filter_map(|path| path.file_name());
    let sums = common::output(Command::new("sha256sum").args(names).current_dir(to))?;
    fs::write(to.join("SHA256SUMS"), sums)?;
    sh(Command::new("sha256sum").args(["--check", "--quiet", "SHA256SUMS"]).current_dir(to))
}

/// Writes the Spack recipe with the checksum, which the recipe in the tarball itself cannot have.
fn recipe(to: &Path, tarball: &Path, version: &str) -> Result<PathBuf> {
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
