//! The source tarball: the committed files, and every crate that the build needs, so that it needs no network.
use super::notices;
use crate::common::{cargo, output, root, sh};
use crate::{python, scratch};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The systems whose crates the tarball contains. A crate that only other systems use, such as Windows, is empty.
const SYSTEMS: &[&str] = &[
    "aarch64-unknown-linux-gnu",
    "armv7-unknown-linux-gnueabihf",
    "i686-unknown-linux-gnu",
    "powerpc64le-unknown-linux-gnu",
    "riscv64gc-unknown-linux-gnu",
    "s390x-unknown-linux-gnu",
    "x86_64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
];

/// The workspaces whose crates the tarball contains.
const MANIFESTS: [&str; 2] = ["Cargo.toml", python::MANIFEST];

/// Tells cargo to use the crates of the tarball.
const VENDORED: &str = "
# The crates of this tarball, so that the build needs no network.
[source.crates-io]
replace-with = \"vendored-sources\"

[source.vendored-sources]
directory = \"vendor\"
";

/// Runs git in the source tree.
pub fn git(arguments: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    // The tree may belong to another user, for example in a container.
    output(git.current_dir(root()).args(["-c", "safe.directory=*"]).args(arguments))
}

/// Returns the time of the last commit, in seconds since 1970; `$SOURCE_DATE_EPOCH` takes its place if it is set. It is
/// the time of every file in a tarball, so that the same commit makes the same tarball.
pub fn epoch() -> Result<u64> {
    let given = std::env::var("SOURCE_DATE_EPOCH").or_else(|_| git(&["log", "-1", "--format=%ct"]));
    match given {
        Ok(text) => text.trim().parse().with_context(|| format!("no time: {text:?}")),
        // The tree is not a clone but an unpacked tarball, whose files have that time.
        Err(_) => {
            let changed = root().join("Cargo.lock").metadata()?.modified()?;
            Ok(changed.duration_since(std::time::UNIX_EPOCH)?.as_secs())
        }
    }
}

/// Makes `hpvm-VERSION.tar.gz` in the directory `to`, and returns its path.
pub fn make(to: &Path, version: &str) -> Result<PathBuf> {
    if !git(&["status", "--porcelain"])?.is_empty() {
        println!("note: the tree has changes that are not committed; the tarball contains the last commit");
    }
    let stage = scratch::directory("tarball")?;
    let name = format!("hpvm-{version}");
    let tree = stage.path().join(&name);
    fs::create_dir(&tree)?;
    export(&tree)?;
    vendor(&tree)?;
    notices::write(&tree.join("THIRD-PARTY-LICENSES.txt"))?;
    pack(stage.path(), &name, &to.join(format!("{name}.tar.gz")))
}

/// Writes the files of the last commit to a directory.
fn export(tree: &Path) -> Result<()> {
    let archive = tree.with_extension("commit");
    git(&["archive", "--format=tar", "--output", &archive.to_string_lossy(), "HEAD"])?;
    sh(Command::new("tar").arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(tree))?;
    Ok(fs::remove_file(archive)?)
}

/// How the names of compiled code end.
const OBJECTS: [&str; 6] = [".a", ".o", ".obj", ".lib", ".so", ".dll"];

/// Adds the crates to the exported tree.
fn vendor(tree: &Path) -> Result<()> {
    let quiet = ["vendor", "--quiet", "--locked", "--versioned-dirs", "--manifest-path"];
    let mut vendor = cargo();
    vendor.args(quiet).arg(tree.join("Cargo.toml")).arg("--sync").arg(tree.join(python::MANIFEST));
    output(vendor.arg(tree.join("vendor")).current_dir(tree))?;
    let needed = needed(tree)?;
    for entry in fs::read_dir(tree.join("vendor"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match needed.contains(&name) {
            true => remove_objects(&path).with_context(|| format!("cannot remove objects of {name}"))?,
            false => empty(&path).with_context(|| format!("cannot empty {name}"))?,
        }
    }
    let config = tree.join(".cargo/config.toml");
    let text = fs::read_to_string(&config)? + VENDORED;
    Ok(fs::write(config, text)?)
}

/// Returns the crates that some system of [`SYSTEMS`] needs, as `NAME-VERSION`.
fn needed(tree: &Path) -> Result<BTreeSet<String>> {
    let mut needed = BTreeSet::new();
    for (system, manifest) in SYSTEMS.iter().flat_map(|system| MANIFESTS.map(|manifest| (system, manifest))) {
        let mut metadata = cargo();
        metadata.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", system]);
        let text = output(metadata.arg("--manifest-path").arg(tree.join(manifest)).current_dir(tree))?;
        let metadata: Value = serde_json::from_str(&text)?;
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let ids: BTreeSet<String> =
            list(&metadata["resolve"]["nodes"]).iter().map(|node| node["id"].to_string()).collect();
        for package in list(&metadata["packages"]) {
            if ids.contains(&package["id"].to_string()) {
                let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
                needed.insert(format!("{}-{}", text("name"), text("version")));
            }
        }
    }
    Ok(needed)
}

/// Removes compiled code from a vendored crate. It is for other systems, and has no source here.
fn remove_objects(package: &Path) -> Result<()> {
    let checksums = package.join(".cargo-checksum.json");
    let mut known: Value = serde_json::from_str(&fs::read_to_string(&checksums)?)?;
    let files = known["files"].as_object_mut().context("a list of files")?;
    let is_object = |name: &String| OBJECTS.iter().any(|end| name.ends_with(end));
    let objects: Vec<String> = files.keys().filter(|name| is_object(name)).cloned().collect();
    for name in objects {
        fs::remove_file(package.join(&name))?;
        files.remove(&name);
    }
    Ok(fs::write(checksums, known.to_string())?)
}

/// Removes the contents of a vendored crate, except what cargo reads to know the crate.
fn empty(package: &Path) -> Result<()> {
    let manifest = fs::read_to_string(package.join("Cargo.toml"))?;
    let checksums = package.join(".cargo-checksum.json");
    let mut known: Value = serde_json::from_str(&fs::read_to_string(&checksums)?)?;
    fs::remove_dir_all(package)?;
    fs::create_dir(package)?;
    fs::write(package.join("Cargo.toml"), &manifest)?;
    let library = library_of(&manifest).unwrap_or_else(|| "src/lib.rs".into());
    let path = package.join(library);
    fs::create_dir_all(path.parent().context("a file lies in a directory")?)?;
    fs::write(path, "// This crate is not for Linux: left out of the tarball.\n")?;
    known["files"] = Value::Object(serde_json::Map::new());
    Ok(fs::write(checksums, known.to_string())?)
}

/// Returns the path of the library in a crate's manifest.
fn library_of(manifest: &str) -> Option<String> {
    let manifest: toml::Table = toml::from_str(manifest).ok()?;
    Some(manifest.get("lib")?.get("path")?.as_str()?.to_owned())
}

/// Packs the directory `name` of `stage`. The same contents make the same bytes.
pub fn pack(stage: &Path, name: &str, to: &Path) -> Result<PathBuf> {
    fs::create_dir_all(to.parent().unwrap_or(Path::new("/")))?;
    let plain = stage.join(format!("{name}.tar"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner"]);
    // Modes depend on the umask of whoever packs.
    tar.args(["--mode=u+rw,go+r,go-w,a+X"]).arg(format!("--mtime=@{}", epoch()?));
    sh(tar.arg("--file").arg(&plain).arg("--directory").arg(stage).arg(name))?;
    sh(Command::new("gzip").args(["--no-name", "-9"]).arg(&plain))?;
    let packed = stage.join(format!("{name}.tar.gz"));
    fs::copy(&packed, to).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(to.to_path_buf())
}

/// Checks that the committed files contain nothing that does not belong into a source tarball.
pub fn no_junk() -> Result<()> {
    let listed = git(&["ls-files", "-z"])?;
    let files: Vec<&str> = listed.split('\0').filter(|file| !file.is_empty()).collect();
    ensure!(files.contains(&"Cargo.lock") && files.contains(&"dist/bootstrap.sh"), "no list of files");
    for file in files {
        ensure!(!is_junk(file), "{file} does not belong into a source tarball");
        let path = root().join(file);
        if let Ok(target) = fs::read_link(&path) {
            ensure!(target.is_relative(), "{file} is a link to {}", target.display());
        }
    }
    Ok(())
}

fn is_junk(file: &str) -> bool {
    const ENDINGS: &[&str] = &[".o", ".a", ".so", ".log", ".orig", ".rej", ".swp", ".pyc", "~", ".deb", ".whl"];
    const DIRECTORIES: &[&str] = &["target", "vendor", "__pycache__", "node_modules"];
    ENDINGS.iter().any(|ending| file.ends_with(ending))
        || file.split('/').any(|part| DIRECTORIES.contains(&part) || is_core_dump(part))
}

/// Returns whether a name is that of a core dump: `core`, or `core.PID`.
fn is_core_dump(name: &str) -> bool {
    name.strip_prefix("core").is_some_and(|rest| {
        let pid = rest.strip_prefix('.').unwrap_or("none");
        rest.is_empty() || pid.bytes().all(|digit| digit.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_make_the_same_tarball() {
        let pack_at = |time: u64| {
            let stage = scratch::directory("tarball").unwrap();
            fs::create_dir(stage.path().join("tree")).unwrap();
            for name in if time == 1 { ["a", "b"] } else { ["b", "a"] } {
                let path = stage.path().join("tree").join(name);
                fs::write(&path, name).unwrap();
                let when = std::time::UNIX_EPOCH + std::time::Duration::from_secs(time);
                fs::File::open(&path).unwrap().set_modified(when).unwrap();
            }
            fs::read(pack(stage.path(), "tree", &stage.path().join("made/tree.tar.gz")).unwrap()).unwrap()
        };
        assert_eq!(pack_at(1), pack_at(1_000_000));
    }

    #[test]
    fn junk_is_known_by_its_name() {
        assert!(is_junk("crates/x/target/debug/x") && is_junk("a.orig") && is_junk("tests/core.17"));
        assert!(!is_junk("crates/pvm-core/src/machine/core.rs") && !is_junk("docs/core.md"));
    }

    #[test]
    fn the_library_of_a_crate_is_in_its_manifest() {
        assert_eq!(library_of("[package]\nname = \"x\"\n[lib]\npath = \"lib/x.rs\"\n").as_deref(), Some("lib/x.rs"));
        assert_eq!(library_of("[package]\nname = \"x\"\n"), None);
    }
}
