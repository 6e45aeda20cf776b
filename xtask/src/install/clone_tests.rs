//! Copies and moves a source tree, and installs from it.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// The id of another user, `nobody`.
const STRANGER: &str = "65534";

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

/// Returns the program, which `cargo xtask` has built. (A test of the package in `tests` would build it again, otherwise,
/// in place of the one that runs.)
fn program() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(Path::parent).unwrap().join("xtask");
    if !program.exists() {
        println!("skipped: {} was not built", program.display());
    }
    Some(program).filter(|program| program.exists())
}

/// Runs xtask in a directory, as cargo does.
fn xtask(program: &Path, directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env_remove("HPVM_DIST").env_remove("DESTDIR");
    command.output().unwrap()
}

/// Installs from a source tree, and returns what is installed as `bin/pvm`.
fn installed(program: &Path, tree: &Path, prefix: &Path) -> String {
    let output = xtask(program, &tree.join("xtask"), &["install", prefix.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read_to_string(prefix.join("bin/pvm")).unwrap()
}

#[test]
fn a_tree_that_was_copied_or_moved_installs_itself() {
    let Some(program) = program() else { return };
    let place = tempfile::tempdir().unwrap();
    let original = source_tree(place.path().join("original"));
    let copy = place.path().join("copy");
    assert!(Command::new("cp").arg("-a").args([&original, &copy]).status().unwrap().success());
    fs::write(copy.join("target/dist/bin/pvm"), "of the copy").unwrap();
    let prefix = place.path().join("prefix");
    assert_eq!(installed(&program, &copy, &prefix), "of the copy");
    assert_eq!(installed(&program, &original, &prefix), "of the original");
    let moved = place.path().join("moved");
    fs::rename(&original, &moved).unwrap();
    assert_eq!(installed(&program, &moved, &prefix), "of the original");
}

/// Makes a source tree that belongs to another user. Returns `None` where that is not possible.
fn strangers_tree(place: &Path) -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: the test needs root");
        return None;
    }
    let tree = source_tree(place.join("tree"));
    for directory in [".cargo", "bench", "crates", "dist", "include", "man", "python/hpvm", "python/src/raw"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let project = "[project]\nname = 'hpvm'\nversion = '1'\ndescription = 'none'\n";
    for (file, text) in [
        ("Cargo.toml", ""),
        ("Cargo.lock", ""),
        ("Makefile", ""),
        ("python/pyproject.toml", project),
        ("python/hpvm/__init__.py", ""),
        ("python/src/lib.rs", ""),
    ] {
        fs::write(tree.join(file), text).unwrap();
    }
    // The tests are started in the directory of their crate.
    fs::copy("../dist/install.sh", tree.join("dist/install.sh")).unwrap();
    assert!(Command::new("chown").args(["-R", STRANGER]).arg(&tree).status().unwrap().success());
    Some(tree)
}

/// Runs the script for `make` in a source tree. Returns whether it succeeds, and what it says.
fn install_script(tree: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new("dist/install.sh");
    command.args(arguments).current_dir(tree).env_remove("DESTDIR").env_remove("HPVM_DIST");
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Waits longer than the clock of a file system needs for a tick, some milliseconds.
fn next_tick() {
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn root_installs_what_another_user_has_built_and_nothing_older_than_a_source() {
    let place = tempfile::tempdir().unwrap();
    let (Some(program), Some(tree)) = (program(), strangers_tree(place.path())) else { return };
    let prefix = place.path().join("prefix");
    let install = || install_script(&tree, &["install", prefix.to_str().unwrap()]);
    assert!(install().1.contains("hpvm is not built yet"));
    next_tick();
    fs::write(tree.join("target/built"), program.to_str().unwrap()).unwrap();
    let (succeeds, said) = install();
    assert!(succeeds && prefix.join("bin/pvm").exists(), "{said}");
    next_tick();
    // An old date, as that of a file which was unpacked.
    let source = fs::File::create(tree.join("crates/new.rs")).unwrap();
    source.set_modified(std::time::UNIX_EPOCH).unwrap();
    let said = install().1;
    assert!(said.contains("crates/new.rs has changed") || said.contains("crates has changed"), "{said}");
}

#[test]
fn root_installs_the_python_package_that_another_user_has_built_for_the_same_place() {
    let place = tempfile::tempdir().unwrap();
    let (Some(program), Some(tree)) = (program(), strangers_tree(place.path())) else { return };
    let (prefix, extension) = (place.path().join("prefix"), tree.join("target/extension.so"));
    let install = || install_script(&tree, &["install-python", prefix.to_str().unwrap(), "--rpath", "/opt/lib"]);
    next_tick();
    fs::write(tree.join("target/built"), program.to_str().unwrap()).unwrap();
    let (succeeds, said) = install();
    assert!(!succeeds && said.contains("run make python with the same PREFIX"), "{said}");
    fs::write(&extension, "extension").unwrap();
    for (built_for, is_right) in [("/usr/lib", false), ("/opt/lib", true)] {
        fs::write(tree.join("target/built-python"), format!("{built_for}\n{}", extension.display())).unwrap();
        assert_eq!(install().0, is_right);
    }
    assert_eq!(fs::read_to_string(prefix.join("hpvm/_hpvm.abi3.so")).unwrap(), "extension");
    next_tick();
    fs::write(tree.join("python/src/lib.rs"), "// changed").unwrap();
    assert!(!install().0);
}
