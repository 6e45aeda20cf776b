//! The version of hpvm, which several files must name.
use crate::common::root;
use anyhow::{Context, Result, ensure};
use std::fs;

/// The version of the interface: of PVM, which hpvm replaces.
pub const INTERFACE: &str = "3.4.6";

/// Files of other parts that name the version, where they exist: the file, and the texts around the version.
const PLACES: &[(&str, &str, &str)] = &[
    ("dist/fmp.pc", "\nVersion: ", "\n"),
    ("dist/spack/package.py", "\n    version(\"", "\""),
    ("dist/spack/package.py", ", \"hpvm-", ".tar.gz\""),
    ("python/pyproject.toml", "\nversion = \"", "\""),
    ("python/Cargo.toml", "\nversion = \"", "\""),
];

fn read(file: &str) -> Result<String> {
    fs::read_to_string(root().join(file)).with_context(|| format!("cannot read {file}"))
}

/// Returns the text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// Returns the version in `Cargo.toml`.
pub fn version() -> Result<String> {
    let manifest: toml::Table = toml::from_str(&read("Cargo.toml")?)?;
    let version = manifest["workspace"]["package"]["version"].as_str().context("Cargo.toml names no version")?;
    Ok(version.to_owned())
}

/// Returns the version of the Debian packages: the first one in `debian/changelog`.
pub fn debian() -> Result<String> {
    let text = read("debian/changelog")?;
    Ok(between(&text, "hpvm (", ")").context("debian/changelog does not begin with \"hpvm (VERSION)\"")?.to_owned())
}

/// Checks that every file names the version of `Cargo.toml`.
pub fn agree() -> Result<()> {
    let version = version()?;
    for (file, before, after) in PLACES {
        if !root().join(file).exists() {
            continue;
        }
        if let Some(named) = between(&read(file)?, before, after) {
            ensure!(named == version, "{file} names version {named}, Cargo.toml {version}");
        } else {
            // A manifest may take the version of the workspace.
            ensure!(file.ends_with(".toml"), "{file} names no version after {before:?}");
        }
    }
    let (debian, ours) = (debian()?, format!("{INTERFACE}+hpvm{version}"));
    ensure!(is_revision_of(&debian, &ours), "debian/changelog names {debian}, not {ours}-REVISION");
    let changes = read("CHANGELOG.md")?;
    let newest = between(&changes, "\n## ", "\n").context("CHANGELOG.md has no version")?;
    ensure!(
        newest == "Unreleased" || newest.split(' ').next() == Some(&version),
        "CHANGELOG.md begins with {newest}, Cargo.toml names {version}"
    );
    for file in ["dist/pvm3.pc", "dist/cmake/pvm3-config-version.cmake"] {
        ensure!(read(file)?.contains(INTERFACE), "{file} does not name the interface's version {INTERFACE}");
    }
    Ok(())
}

/// Returns whether a Debian version is this upstream version with a revision.
fn is_revision_of(debian: &str, upstream: &str) -> bool {
    let revision = debian.strip_prefix(upstream).and_then(|rest| rest.strip_prefix('-'));
    revision.is_some_and(|revision| revision.starts_with(|first: char| first.is_ascii_digit()))
}

/// Returns the heading of the newest version in `CHANGELOG.md`.
pub fn newest_change() -> Result<String> {
    Ok(between(&read("CHANGELOG.md")?, "\n## ", "\n").unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debian_version_has_the_upstream_version_and_a_revision() {
        assert!(is_revision_of("3.4.6+hpvm0.1.0-1", "3.4.6+hpvm0.1.0"));
        for wrong in ["3.4.6+hpvm0.1.0", "3.4.6+hpvm0.1.01-1", "3.4.6-5", "3.4.6+hpvm0.1.0-"] {
            assert!(!is_revision_of(wrong, "3.4.6+hpvm0.1.0"), "{wrong}");
        }
    }

    #[test]
    fn a_version_is_found_between_its_neighbours() {
        assert_eq!(between("a\nversion = \"1.2\"\n", "\nversion = \"", "\""), Some("1.2"));
        assert_eq!(between("version.workspace = true\n", "\nversion = \"", "\""), None);
    }
}
