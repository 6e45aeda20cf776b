//! The licences of the crates in our programs and libraries: whoever passes on binaries must pass them on, too.
use crate::common::{cargo, output, root};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The packages whose code is installed.
const SHIPPED: &[&str] = &["libpvm3", "libfmp", "pvmd", "pvm-tools"];
/// The workspace of the Python package; all of it is installed.
const ALSO_SHIPPED: &str = crate::python::MANIFEST;

const HEAD: &str = "The programs and libraries of hpvm contain these crates. Each is listed with its licence; of a \
licence with\n\"OR\", hpvm uses Apache-2.0 where that is one of the choices. The texts follow.\n\n";

/// A crate in our programs.
struct Shipped {
    name: String,
    licence: String,
    sources: PathBuf,
}

/// Writes the list and the texts to a file.
pub fn write(to: &Path) -> Result<()> {
    let crates = shipped()?;
    ensure!(crates.iter().any(|shipped| shipped.name.starts_with("rustls ")), "rustls is missing in the list");
    let mut text = HEAD.to_owned();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for shipped in &crates {
        text += &format!("{}: {}\n", shipped.name, shipped.licence);
        for licence in texts_of(&shipped.sources)? {
            texts.entry(licence).or_default().push(shipped.name.clone());
        }
    }
    for (licence, names) in texts {
        text += &format!("\n{}\n{}\n\n{licence}", "=".repeat(80), names.join(", "));
    }
    fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))
}

/// Returns the crates of others that are compiled into what is installed.
fn shipped() -> Result<Vec<Shipped>> {
    let mut tree = cargo();
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}|{l}"]);
    for package in SHIPPED {
        tree.args(["--package", package]);
    }
    let mut also = cargo();
    also.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}|{l}"]);
    let listed = output(&mut tree)? + &output(also.args(["--manifest-path", ALSO_SHIPPED]))?;
    // A crate that was listed before is marked with a star.
    let others = listed.lines().filter(|line| !line.contains(" (/")).map(|line| line.trim_end_matches(" (*)"));
    let lines: BTreeSet<String> = others.map(|line| line.replace(" (proc-macro)|", "|")).collect();
    let places = sources()?;
    let mut shipped = Vec::new();
    for line in &lines {
        let Some((name, licence)) = line.split_once('|') else { continue };
        let sources = places.get(name).with_context(|| format!("cargo knows no sources of {name}"))?.clone();
        shipped.push(Shipped { name: name.to_owned(), licence: licence.to_owned(), sources });
    }
    Ok(shipped)
}

/// Returns the directory of each crate's sources, by `NAME vVERSION`.
fn sources() -> Result<BTreeMap<String, PathBuf>> {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut packages = Vec::new();
    for manifest in ["Cargo.toml", ALSO_SHIPPED] {
        let mut metadata = cargo();
        metadata.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", &host]);
        let metadata: serde_json::Value = serde_json::from_str(&output(metadata.args(["--manifest-path", manifest]))?)?;
        packages.extend(metadata["packages"].as_array().context("cargo metadata lists no packages")?.iter().cloned());
    }
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let entry = |package: &serde_json::Value| {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let name = format!("{} v{}", text(&package["name"]), text(&package["version"]));
        (name, manifest.parent().unwrap_or(&root()).to_path_buf())
    };
    Ok(packages.iter().map(entry).collect())
}

/// Returns the texts of the licence files of a crate.
fn texts_of(sources: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for path in crate::build::files_of(sources)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"].iter().any(|start| name.starts_with(start)) {
            texts.push(String::from_utf8_lossy(&fs::read(&path)?).trim_end().to_owned() + "\n");
        }
    }
    Ok(texts)
}
