//! Copies and moves a source tree, and installs from it.
#![forbid(unsafe_code)]
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Makes a small stand-in for a source tree that was built.
fn source_tree(path: PathBuf) -> PathBuf {
    for (file, text) in [
        ("xtask/Cargo.toml", ""),
        ("target/dist/lib/libpvm3.so.3", "library"),
        ("target/dist/bin/pvm", "of the original"),
    ] {
        let file = path.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    path
}

/// Runs xtask in a directory, as cargo does.
fn xtask(directory: &Path, arguments: &[&str]) -> Output {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("xtask");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env_remove("HPVM_DIST").env_remove("DESTDIR");
    command.output().unwrap()
}

/// Installs from a source tree, and returns what is installed as `bin/pvm`.
fn installed(tree: &Path, prefix: &Path) -> String {
    let output = xtask(&tree.join("xtask"), &["install", prefix.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(prefix.join("bin/pvm")).unwrap()
}

#[test]
fn a_tree_that_was_copied_or_moved_installs_itself() {
    let place = tempfile::tempdir().unwrap();
    let original = source_tree(place.path().join("original"));
    let copy = place.path().join("copy");
    assert!(Command::new("cp").arg("-a").args([&original, &copy]).status().unwrap().success());
    fs::write(copy.join("target/dist/bin/pvm"), "of the copy").unwrap();
    let prefix = place.path().join("prefix");
    assert_eq!(installed(&copy, &prefix), "of the copy");
    assert_eq!(installed(&original, &prefix), "of the original");
    let moved = place.path().join("moved");
    fs::rename(&original, &moved).unwrap();
    assert_eq!(installed(&moved, &prefix), "of the original");
}
