//! The modules of the machine are layers: `mod.rs` lists them from the lowest to the highest, and each module imports
//! only from modules that are listed before it. Only `mod.rs` has an `impl Machine`. The crates are layers too: each
//! uses only those that the table in ARCHITECTURE.md lists for it, and neither the core nor the explorer does I/O.
use crate::common::root;
use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the modules are.
const MACHINE: &str = "crates/pvm-core/src/machine";

/// For each module, the modules that it imports from.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks the machine's modules.
pub fn machine_modules_are_layers(sources: &[PathBuf]) -> Result<()> {
    let folder = root().join(MACHINE);
    let layers = listed(&fs::read_to_string(folder.join("mod.rs"))?)?;
    let of_machine = Regex::new(r"\bimpl(<.*>)? Machine\b")?;
    let mut imports = Imports::new();
    let mut wrong = Vec::new();
    for path in sources.iter().filter(|path| path.starts_with(&folder)) {
        let name = path.strip_prefix(&folder)?;
        let module = module_of(name)?;
        if matches!(module.as_str(), "mod" | "tests") || name.to_string_lossy().ends_with("_tests.rs") {
            continue;
        }
        let text = fs::read_to_string(path)?;
        if of_machine.is_match(&text) {
            wrong.push(format!("{}: impl Machine is for mod.rs", name.display()));
        }
        let found = imports_of(&text, name.components().count() == 1 || name.ends_with("mod.rs"))?;
        wrong.extend(found.outside.iter().map(|what| format!("{}: {what} comes from mod.rs", name.display())));
        imports.entry(module).or_default().extend(found.modules);
    }
    for (module, of) in &mut imports {
        of.remove(module);
    }
    wrong.extend(against_the_order(&layers, &imports));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Returns the module to which a file belongs, given its path below the machine's folder: the name of the file, or of
/// the folder that contains it.
fn module_of(path: &Path) -> Result<String> {
    let first = path.components().next().context("a file")?;
    Ok(Path::new(&first).with_extension("").to_string_lossy().into_owned())
}

/// What a file imports from the machine's modules.
#[derive(Debug, Default, PartialEq)]
struct Found {
    modules: BTreeSet<String>,
    /// Names that come from `mod.rs` itself.
    outside: BTreeSet<String>,
}

/// Returns a file's text without its unit tests and comments.
fn code_of(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// Finds the imports of a file, without its unit tests. In a file that is itself a module of the machine (`is_module`),
/// `super` means the machine.
fn imports_of(text: &str, is_module: bool) -> Result<Found> {
    let code = code_of(text);
    let start = if is_module { r"(?:super|crate::machine)" } else { r"(?:super::super|crate::machine)" };
    let one = Regex::new(&format!(r"\b{start}::(\w+)"))?;
    let several = Regex::new(&format!(r"\b{start}::\{{([^}}]*)\}}"))?;
    let mut names: BTreeSet<String> = one.captures_iter(&code).map(|found| found[1].to_owned()).collect();
    for list in several.captures_iter(&code) {
        let parts = list[1].split(',').map(|part| part.trim().split("::").next().unwrap_or("").to_owned());
        names.extend(parts.filter(|part| !part.is_empty()));
    }
    let is_type = |name: &String| name.starts_with(char::is_uppercase);
    let (outside, modules) = names.into_iter().filter(|name| name != "self").partition(is_type);
    Ok(Found { modules, outside })
}

/// Returns the modules that the comment at the top of `mod.rs` lists, in its order: the names in front of each colon.
fn listed(text: &str) -> Result<Vec<String>> {
    let name = Regex::new(r"`(\w+)`")?;
    let items = text.lines().filter_map(|line| line.strip_prefix("//! * ")?.split_once(':'));
    Ok(items.flat_map(|(names, _)| name.captures_iter(names).map(|found| found[1].to_owned())).collect())
}

/// Returns the errors: imports from a module that is not listed before the importing one, and differences between the
/// list and the modules.
fn against_the_order(layers: &[String], imports: &Imports) -> Vec<String> {
    let place = |module: &String| layers.iter().position(|listed| listed == module);
    let mut wrong = Vec::new();
    for (module, of) in imports {
        let Some(own) = place(module) else {
            wrong.push(format!("mod.rs does not list {module}"));
            continue;
        };
        let later = of.iter().filter(|other| place(other).is_none_or(|theirs| theirs >= own));
        wrong.extend(later.map(|other| format!("{module} imports {other}, which mod.rs does not list before it")));
    }
    let gone = layers.iter().filter(|listed| !imports.contains_key(*listed));
    wrong.extend(gone.map(|listed| format!("mod.rs lists {listed}, which is no module")));
    wrong
}

/// Checks that each crate uses those crates of hpvm that the table in ARCHITECTURE.md lists for it.
pub fn crates_use_what_the_map_says() -> Result<()> {
    let map = crates_in_map(&fs::read_to_string(root().join("ARCHITECTURE.md"))?)?;
    let mut wrong = Vec::new();
    for entry in root().join("crates").read_dir()? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let used = dependencies(&fs::read_to_string(path.join("Cargo.toml"))?)?;
        match map.get(&name) {
            Some(listed) if used == *listed => {}
            Some(listed) => wrong.push(format!("{name} uses {used:?}, the map says {listed:?}")),
            None => wrong.push(format!("the map has no {name}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Returns the crates of hpvm that a manifest always needs, not those for tests and fuzzing. The names are without
/// `pvm-`.
fn dependencies(manifest: &str) -> Result<BTreeSet<String>> {
    let manifest: toml::Table = manifest.parse()?;
    let all = manifest.get("dependencies").and_then(toml::Value::as_table).into_iter().flatten();
    let needed = all.filter(|(_, value)| value.get("optional").and_then(toml::Value::as_bool) != Some(true));
    Ok(needed.filter_map(|(name, _)| name.strip_prefix("pvm-")).map(str::to_owned).collect())
}

/// Returns the crates in the table of ARCHITECTURE.md, each with the crates that it uses. The names are without `pvm-`.
/// A row can have several crates, and then has a list for each of them, with semicolons in between.
fn crates_in_map(text: &str) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let row = Regex::new(r"(?m)^\| ((?:`[a-z0-9-]+`(?:, )?)+) \|.*\| ([a-z,; ]+) \|$")?;
    let mut map = BTreeMap::new();
    for found in row.captures_iter(text) {
        for (name, used) in found[1].split(", ").zip(found[2].split("; ")) {
            let used = used.split(", ").filter(|one| *one != "none").map(str::to_owned).collect();
            map.insert(name.trim_matches('`').to_owned(), used);
        }
    }
    Ok(map)
}

/// Checks that the core and the explorer do no I/O, read no clock and start no threads, except in tests.
pub fn core_does_no_io(sources: &[PathBuf]) -> Result<()> {
    let folders = ["crates/pvm-core/src", "crates/pvm-explorer/src"].map(|folder| root().join(folder));
    let is_test = |path: &Path| {
        path.components().any(|part| part.as_os_str() == "tests")
            || path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"))
    };
    let mut wrong = Vec::new();
    for path in sources.iter().filter(|path| folders.iter().any(|folder| path.starts_with(folder)) && !is_test(path)) {
        let text = fs::read_to_string(path)?;
        wrong.extend(io_in(&text)?.iter().map(|what| format!("{}: {what}", path.display())));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Returns the names in a file, without its unit tests, that stand for I/O, a clock or threads.
fn io_in(text: &str) -> Result<Vec<String>> {
    let of_system = Regex::new(r"\bstd::(?:fs|io|thread|process|os|env)\b|\b(?:Instant|SystemTime|Tcp\w+|Udp\w+)\b")?;
    Ok(of_system.find_iter(&code_of(text)).map(|found| found.as_str().to_owned()).collect())
}

/// Checks that the daemon's code for actions names every action: its `match` has no wildcard, so no action can be
/// forgotten.
pub fn every_action_is_named() -> Result<()> {
    let path = root().join("crates/pvmd/src/daemon/execute.rs");
    let text = fs::read_to_string(&path)?;
    match text.contains("_ =>") {
        true => bail!("{}: a wildcard swallows actions that nobody carries out", path.display()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(modules: &[&str], outside: &[&str]) -> Found {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Found { modules: set(modules), outside: set(outside) }
    }

    #[test]
    fn imports_are_found_in_all_forms() {
        let text = "use super::core::{Core, SubMachine};\nuse super::{Action, index, limits::NAME};\n// super::not\n\
                    fn a(x: crate::machine::output::Output) {}\n#[cfg(test)]\nmod tests {\n    use super::tests::X;\n}\n";
        assert_eq!(imports_of(text, true).unwrap(), found(&["core", "index", "limits", "output"], &["Action"]));
        let inner = "use super::spread;\nuse crate::machine::core::Core;\nuse super::super::event::Event;\n";
        assert_eq!(imports_of(inner, false).unwrap(), found(&["core", "event"], &[]));
    }

    #[test]
    fn an_import_against_the_order_is_found() {
        let text = "//! Words.\n//! * `a`, `b`: types\n//! * `c`: uses `a`\n//! * this file: the rest\n";
        let layers = listed(text).unwrap();
        assert_eq!(layers, ["a", "b", "c"]);
        let imports = |pairs: &[(&str, &[&str])]| -> Imports {
            pairs
                .iter()
                .map(|(one, of)| ((*one).to_owned(), of.iter().map(|name| (*name).to_owned()).collect()))
                .collect()
        };
        let wrong = |pairs: &[(&str, &[&str])]| against_the_order(&layers, &imports(pairs));
        assert!(wrong(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b"])]).is_empty());
        let found = ["a imports b, which mod.rs does not list before it", "mod.rs does not list d"];
        assert_eq!(wrong(&[("a", &["b"]), ("b", &[]), ("c", &[]), ("d", &["a"])]), found);
        assert_eq!(wrong(&[("a", &[]), ("b", &[])]), ["mod.rs lists c, which is no module"]);
    }

    #[test]
    fn rows_of_the_map_are_read() {
        let text =
            "| crate | part | may use |\n| --- | --- | --- |\n| `a` | x | none |\n| `b`, `c` | y | core, fmp; a |\n";
        let set = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let map = crates_in_map(text).unwrap();
        assert_eq!(map.len(), 3);
        assert_eq!((&map["a"], &map["b"], &map["c"]), (&set(&[]), &set(&["core", "fmp"]), &set(&["a"])));
    }

    #[test]
    fn io_clock_and_threads_are_found() {
        let text = "use std::net::SocketAddr;\nuse std::time::{Duration, Instant};\n// std::fs\nstd::thread::spawn();\n\
                    #[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert_eq!(io_in(text).unwrap(), ["Instant", "std::thread"]);
    }

    #[test]
    fn a_file_in_a_folder_belongs_to_the_folder() {
        for (path, module) in [("core.rs", "core"), ("groups/mod.rs", "groups"), ("groups/barrier.rs", "groups")] {
            assert_eq!(module_of(Path::new(path)).unwrap(), module);
        }
    }
}
