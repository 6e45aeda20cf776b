//! The Debian packages, checked without building them: what each contains, beside what Debian's own contain.
use crate::common::{dist, in_path, output, root};
use crate::install::{self, Layout};
use crate::{debian_pvm, python, scratch};
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Our packages. The first [`THEIRS_TOO`] take the place of Debian's packages with the same names.
pub const PACKAGES: [&str; 4] = ["libpvm3", "pvm", "pvm-dev", "python3-hpvm"];
const THEIRS_TOO: usize = 3;
/// Where Debian has Python modules.
const PYTHON_MODULES: &str = "usr/lib/python3/dist-packages";

/// Debian's version of PVM, which ours must follow, and a version that Debian may make.
const THEIRS: [&str; 2] = ["3.4.6-5", "3.4.6-99"];

/// Files of Debian's packages that ours lack, and why. `*` is explained at [`matches()`].
const LACKING: &[(&str, &str)] = &[
    ("usr/lib/*/libpvm3.so.3.4.6", "the file behind libpvm3.so.3; ours is that file"),
    ("usr/lib/*/libgpvm3.so.3.4.6", "the file behind libgpvm3.so.3; ours is that file"),
    ("usr/lib/*/libpvmtrc.a", "internal to the tracer"),
    ("usr/bin/pvmgs", "the server of groups: pvmd does its work"),
    ("usr/lib/pvm3/lib/pvmgs", "the server of groups: pvmd does its work"),
    ("usr/bin/pvm_gstat", "prints the state of the server of groups; `pvm conf -g` takes its place"),
    ("usr/bin/pvmgroups", "lists the groups of the server of groups; `pvm conf -g` takes its place"),
    ("usr/bin/tracer", "`pvm run --trace` takes its place"),
    ("usr/bin/trcsort", "`pvm run --trace` takes its place"),
    ("usr/lib/pvm3/conf/*.m4", "for imake, which aimk does not use"),
];

/// Returns Debian's name of this architecture's directory for libraries.
fn multiarch() -> String {
    let architecture = std::env::consts::ARCH;
    format!("{}-linux-gnu", if architecture == "x86" { "i386" } else { architecture })
}

/// Returns the files of each of our packages, relative to `/`. Returns an error if a file is in no package or in two,
/// or if a pattern names nothing.
fn contents() -> Result<BTreeMap<&'static str, BTreeSet<String>>> {
    let stage = scratch::directory("debian")?;
    let layout = Layout::new(Path::new("/usr"), &format!("lib/{}", multiarch()))?;
    install::install(&dist(), &stage.path().join("usr"), &layout)?;
    python::place_sources(&stage.path().join(PYTHON_MODULES))?;
    let mut left = BTreeSet::new();
    files(stage.path(), stage.path(), &mut left)?;
    let mut contents = BTreeMap::new();
    for package in PACKAGES {
        let mut own = BTreeSet::new();
        for line in lines(&format!("debian/{package}.install"))? {
            // A second word is the directory to which the package moves the file.
            let pattern = line.split_whitespace().next().unwrap_or_default();
            let found: BTreeSet<String> = left.iter().filter(|file| matches(pattern, file)).cloned().collect();
            ensure!(!found.is_empty(), "{pattern} of {package} names no file that is not yet in a package");
            left.retain(|file| !found.contains(file));
            own.extend(found);
        }
        contents.insert(package, own);
    }
    for pattern in lines("debian/not-installed")? {
        left.retain(|file| !matches(&pattern, file));
    }
    ensure!(left.is_empty(), "in no package: {}", left.into_iter().collect::<Vec<_>>().join(", "));
    Ok(contents)
}

fn files(tree: &Path, below: &Path, found: &mut BTreeSet<String>) -> Result<()> {
    for entry in below.read_dir()? {
        let path = entry?.path();
        if path.symlink_metadata()?.is_dir() {
            files(tree, &path, found)?;
        } else {
            found.insert(path.strip_prefix(tree)?.display().to_string());
        }
    }
    Ok(())
}

/// Returns the lines of a file of the source tree, without comments.
fn lines(file: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(root().join(file)).with_context(|| format!("cannot read {file}"))?;
    Ok(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect())
}

/// Returns whether a path fits a pattern, in which `*` stands for any text within one part of the path.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    pattern.len() == path.len() && pattern.iter().zip(&path).all(|(pattern, part)| part_matches(pattern, part))
}

fn part_matches(pattern: &str, part: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == part,
        Some((before, after)) => part.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len()).any(|at| rest.is_char_boundary(at) && part_matches(after, &rest[at..]))
        }),
    }
}

/// Checks that each file of an installation is in exactly one package.
pub fn every_file_has_a_package() -> Result<()> {
    contents().map(drop)
}

/// Checks that our packages contain every file of Debian's packages with the same names, in the same package, except
/// the documented ones. Manual pages and documents are not compared.
pub fn has_what_debian_has() -> Result<()> {
    let ours = contents()?;
    for package in &PACKAGES[..THEIRS_TOO] {
        let theirs = debian_pvm::files(package)?;
        ensure!(!theirs.is_empty(), "Debian's {package} has no file");
        for file in theirs {
            let file = file.strip_prefix(root().join("target/debian-pvm"))?.display().to_string();
            let lacking = LACKING.iter().any(|(pattern, _)| matches(pattern, &file));
            let has = ours[package].contains(&file);
            ensure!(has || lacking || file.starts_with("usr/share/"), "our {package} has no {file}");
            ensure!(!(has && lacking), "our {package} has {file}, which is listed as lacking");
        }
    }
    Ok(())
}

/// Checks the fields of `debian/control`, and that versions are ordered as the packages assume.
pub fn control_is_sound(version: &str) -> Result<()> {
    let text = fs::read_to_string(root().join("debian/control"))?;
    let paragraphs = paragraphs(&text)?;
    let (source, packages) = paragraphs.split_first().context("debian/control is empty")?;
    ensure!(source.get("Source").is_some_and(|name| name == "hpvm"), "the source package is not hpvm");
    for name in PACKAGES {
        let package = packages.iter().find(|package| package.get("Package").is_some_and(|given| given == name));
        let package = package.with_context(|| format!("debian/control has no {name}"))?;
        for field in ["Architecture", "Depends", "Description"] {
            ensure!(package.get(field).is_some_and(|value| !value.is_empty()), "{name} has no field {field}");
        }
    }
    if !in_path("dpkg") {
        return Ok(());
    }
    for theirs in THEIRS {
        follows(version, theirs)?;
        // The bound of `Breaks: pvm (<< 3.4.6+hpvm)`.
        follows("3.4.6+hpvm", theirs)?;
    }
    follows(version, "3.4.6+hpvm")
}

fn follows(later: &str, earlier: &str) -> Result<()> {
    output(Command::new("dpkg").args(["--compare-versions", later, "gt", earlier]))
        .map(drop)
        .with_context(|| format!("{later} does not follow {earlier}"))
}

/// Parses paragraphs of fields. A line that begins with a space continues a field.
fn paragraphs(text: &str) -> Result<Vec<BTreeMap<String, String>>> {
    let mut paragraphs = Vec::new();
    for paragraph in text.split("\n\n") {
        let mut fields: BTreeMap<String, String> = BTreeMap::new();
        let mut last = String::new();
        for line in paragraph.lines().filter(|line| !line.starts_with('#')) {
            if line.starts_with(' ') {
                let field = fields.get_mut(&last).with_context(|| format!("{line:?} continues no field"))?;
                *field += line;
                continue;
            }
            let Some((name, value)) = line.split_once(':') else { bail!("{line:?} has no field") };
            ensure!(fields.insert(name.into(), value.trim().into()).is_none(), "{name} occurs twice");
            last = name.to_owned();
        }
        paragraphs.push(fields);
    }
    Ok(paragraphs)
}

/// Returns the built packages in a directory.
pub fn packages_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let is_package = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "deb");
    Ok(crate::build::files_of(directory)?.into_iter().filter(is_package).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stays_within_one_part_of_a_path() {
        assert!(matches("usr/lib/*/lib*.so.*", "usr/lib/x86_64-linux-gnu/libpvm3.so.3"));
        assert!(!matches("usr/lib/*", "usr/lib/pvm3/conf") && !matches("usr/bin/pvm", "usr/bin/pvmd"));
        assert!(matches("usr/lib/*/lib*.so", "usr/lib/a/libx.so") && !matches("*.so", "libx.so.1"));
    }

    #[test]
    fn paragraphs_have_fields_and_continuations() {
        let parsed = paragraphs("# why\nA: 1\nB:\n x,\n y\n\nA: 2\n").unwrap();
        assert_eq!((parsed.len(), parsed[0]["B"].as_str(), parsed[1]["A"].as_str()), (2, " x, y", "2"));
        assert!(paragraphs("A: 1\nA: 2\n").is_err() && paragraphs("nothing\n").is_err());
    }
}
