//! `cargo xtask lint`: checks the house rules.
use crate::common::{Checks, cargo, files_under, output, root};
use crate::counts::Counts;
use crate::debian_rust::{self, CLIPPY};
use crate::{atomics, circles, citations, clippy, compatibility, debian_pvm, layers, limits, modules, python};
use anyhow::{Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};

/// The most lines of a source file, without its tests.
const LINES_MAX: usize = 600;
/// Modules that may contain unsafe code; the rest of their crate denies it.
const UNSAFE_MODULES: [&str; 3] =
    ["crates/pvm-net/src/raw.rs", "crates/pvm-net/src/fabric/raw/mod.rs", "python/src/raw/mod.rs"];
/// Crates that may contain unsafe code; all others have `#![forbid(unsafe_code)]`.
const UNSAFE_CRATES: &[&str] = &["crates/pvm-descriptor", "crates/pvm-fmp", "crates/libpvm3", "crates/libfmp"];
/// The directories of the sources; `tests` contains programs for tests.
const SOURCES: &[&str] = &["crates", "xtask", "trials", "lab", "include", "bench", "examples", "tests", "python"];
/// The directories whose files must not contain paths that exist on one computer only.
const TEXTS: &[&str] = &[
    "crates", "xtask", "trials", "lab", "include", "bench", "examples", "tests", "dist", "docs", "man", "python", ".ci",
];

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    counted(arguments)?.report()
}

/// Runs the command as a part of `cargo xtask test`.
pub fn counted(_arguments: &[String]) -> Result<Counts> {
    let mut checks = Checks::default();
    let sources = files_under(SOURCES, &["rs", "c", "h"])?;
    checks.check(&format!("no file is longer than {LINES_MAX} lines"), none_is_long(&sources));
    checks.check("modules with parts are NAME/mod.rs", modules::have_one_convention(&sources));
    checks.check("unsafe stays in its homes", unsafe_stays_home(&sources));
    checks.check("ordered accesses to atomics name their pair", atomics_have_partners(&sources));
    checks
        .check("each module of the machine imports from those before it", layers::machine_modules_are_layers(&sources));
    checks.check("no modules use each other in a circle", circles::are_nowhere());
    checks.check("methods are with their types", circles::methods_are_with_their_types());
    checks.check("crates use what the map says", layers::crates_use_what_the_map_says());
    checks.check("the core and the explorer do no I/O and read no clock", layers::core_does_no_io(&sources));
    checks.check("the daemon names every action", layers::every_action_is_named());
    checks.check("no path of one machine", no_machine_paths());
    checks.check("no program has the path of its source tree", no_compiled_in_paths(&sources));
    checks.check("what is cited is there", everything_cited_is_there());
    checks.check("docs/limits.md is new and true", limits::is_current());
    if debian_pvm::obstacle().is_none() {
        checks.check("docs/compatibility.md is new", compatibility::is_current());
    } else {
        checks.skip("docs/compatibility.md is new", "it cannot be made without Debian's PVM");
    }
    if has("fmt") {
        checks.check("cargo fmt changes nothing", quiet(&["fmt", "--all", "--check"]));
        // The extension for Python is a workspace of its own.
        let extension = ["fmt", "--manifest-path", python::MANIFEST, "--check"];
        checks.check("cargo fmt changes nothing in python", quiet(&extension));
    } else {
        checks.skip("cargo fmt changes nothing", "cargo fmt is not installed");
    }
    clippy::check(&mut checks);
    checks.check("links in doc comments lead to what they name", links_resolve());
    Ok(checks.counts())
}

/// Returns whether cargo has that command.
pub fn has(command: &str) -> bool {
    output(cargo().args([command, "--version"])).is_ok()
}

/// Checks the links between items in doc comments, of private items too.
pub fn links_resolve() -> Result<()> {
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"];
    let mut cargo = if CLIPPY.is_there() { debian_rust::cargo()? } else { cargo() };
    output(cargo.args(arguments).env("RUSTDOCFLAGS", "-D rustdoc::broken_intra_doc_links")).map(drop)
}

fn quiet(arguments: &[&str]) -> Result<()> {
    output(cargo().args(arguments)).map(drop)
}

fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn is_test(path: &Path) -> bool {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    name == "tests" || name.ends_with("_tests") || path.iter().any(|part| part == "tests")
}

fn none_is_long(sources: &[PathBuf]) -> Result<()> {
    let mut long = Vec::new();
    for path in sources.iter().filter(|path| !is_test(Path::new(&short(path)))) {
        let lines = lines_without_tests(&fs::read_to_string(path)?);
        if lines > LINES_MAX {
            long.push(format!("{} ({lines})", short(path)));
        }
    }
    ensure!(long.is_empty(), "{}", long.join(" "));
    Ok(())
}

/// Returns the number of lines before the module of unit tests, which is the last part of a file.
fn lines_without_tests(text: &str) -> usize {
    let is_last = |line: &str| line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test");
    let lines: Vec<&str> = text.lines().collect();
    let tests =
        lines.windows(2).position(|pair| is_last(pair[0]) && pair[1].starts_with("mod ") && pair[1].ends_with('{'));
    tests.unwrap_or(lines.len())
}

/// Returns whether this file is the root of a crate.
fn is_crate_root(path: &Path) -> bool {
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let Some(place) = parts.iter().rposition(|part| matches!(&**part, "crates" | "xtask" | "trials" | "lab")) else {
        return false;
    };
    let inside = if parts[place] == "crates" { &parts[place + 2..] } else { &parts[place + 1..] };
    match inside {
        [file] => file == "build.rs",
        [src, file] if src == "src" => file == "lib.rs" || file == "main.rs",
        [src, bin, _] if src == "src" => bin == "bin",
        [directory, _] => matches!(&**directory, "tests" | "examples" | "benches"),
        [directory, _, file] if directory == "tests" => file == "main.rs",
        _ => false,
    }
}

fn unsafe_stays_home(sources: &[PathBuf]) -> Result<()> {
    let mut open = Vec::new();
    for path in sources.iter().filter(|path| path.extension().is_some_and(|ending| ending == "rs")) {
        let name = short(path);
        if UNSAFE_CRATES.iter().any(|home| name.starts_with(home)) {
            continue;
        }
        let text = fs::read_to_string(path)?;
        let closed = text.contains("#![forbid(unsafe_code)]");
        let ajar = UNSAFE_MODULES.iter().any(|module| Path::new(module).with_file_name("lib.rs") == Path::new(&name));
        let closed = closed || ajar && text.contains("#![deny(unsafe_code)]");
        let opens = text.contains(concat!("allow(", "unsafe_code)")) && !UNSAFE_MODULES.contains(&name.as_str());
        if opens || is_crate_root(Path::new(&name)) && !closed {
            open.push(name);
        }
    }
    ensure!(open.is_empty(), "no #![forbid(unsafe_code)] in {}", open.join(" "));
    Ok(())
}

/// Checks that ordered accesses to atomics name their pair, in the crates that access shared memory. Tests may use any
/// memory orders.
fn atomics_have_partners(sources: &[PathBuf]) -> Result<()> {
    let is_one = |path: &&PathBuf| {
        let name = short(path);
        UNSAFE_CRATES.iter().any(|home| name.starts_with(&format!("{home}/src/")))
            && !is_test(Path::new(&name))
            && !name.ends_with("/sync.rs")
    };
    atomics::have_partners(&sources.iter().filter(is_one).collect::<Vec<_>>())
}

fn everything_cited_is_there() -> Result<()> {
    let mut files = files_under(TEXTS, &["rs", "c", "h", "md", "sh", "toml", "map", "f"])?;
    for entry in root().read_dir()? {
        files.push(entry?.path());
    }
    citations::are_there(&files)
}

fn no_machine_paths() -> Result<()> {
    // The paths are written in two halves; otherwise the check would find this file.
    let signs = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let mut files = files_under(TEXTS, &[])?;
    // In a second working tree of git, `.git` is a file that contains the path of the first one.
    files.extend(crate::build::files_of(&root())?.into_iter().filter(|path| !path.ends_with(".git")));
    let mut found = Vec::new();
    for path in files {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            if signs.iter().any(|sign| line.contains(sign)) {
                found.push(format!("{}:{}", short(&path), number + 1));
            }
        }
    }
    ensure!(found.is_empty(), "{}", found.join(" "));
    Ok(())
}

/// Checks that no program contains a path that cargo knows at compile time. After the source tree was copied or moved,
/// cargo does not compile such a program again, and it would use the tree in which it was compiled.
fn no_compiled_in_paths(sources: &[PathBuf]) -> Result<()> {
    let signs = ["MANIFEST_DIR", "BIN_EXE_"].map(|name| format!("env!(\"CARGO_{name}"));
    let mut found = Vec::new();
    for path in sources {
        let text = fs::read_to_string(path)?;
        if signs.iter().any(|sign| text.contains(sign)) {
            found.push(short(path));
        }
    }
    ensure!(found.is_empty(), "env! of a path in {}", found.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_at_the_end_of_a_file_do_not_count_for_its_length() {
        assert_eq!(lines_without_tests("a\nb\n#[cfg(test)]\nmod tests {\n}\n"), 2);
        assert_eq!(lines_without_tests("a\n#[cfg(test)]\nmod tests;\nb\n"), 4);
    }

    #[test]
    fn crate_roots_are_the_files_that_cargo_starts_from() {
        let roots = ["src/main.rs", "tests/b.rs", "tests/b/main.rs", "build.rs"].map(|file| format!("crates/a/{file}"));
        for root in roots.iter().map(String::as_str).chain(["xtask/src/main.rs", "xtask/src/lib.rs", "lab/src/main.rs"])
        {
            assert!(is_crate_root(Path::new(root)), "{root}");
        }
        for other in ["crates/pvmd/src/tasks.rs", "xtask/src/build.rs", "crates/a/src/b/main.rs", "tests/a/b.rs"] {
            assert!(!is_crate_root(Path::new(other)), "{other}");
        }
    }
}
