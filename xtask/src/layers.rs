//! The modules of the machine stand one over the other: none imports from one that stands over it, so that there is
//! no circle, and only `mod.rs` has an `impl Machine`.
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
pub fn stand_one_over_the_other(sources: &[PathBuf]) -> Result<()> {
    let folder = root().join(MACHINE);
    let mut imports = Imports::new();
    let mut wrong = Vec::new();
    for path in sources.iter().filter(|path| path.starts_with(&folder)) {
        let name = path.strip_prefix(&folder)?;
        let module = module_of(name)?;
        if matches!(module.as_str(), "mod" | "tests") || name.to_string_lossy().ends_with("_tests.rs") {
            continue;
        }
        let text = fs::read_to_string(path)?;
        if text.contains("impl Machine") {
            wrong.push(format!("{}: impl Machine is for mod.rs", name.display()));
        }
        let found = imports_of(&text, name.components().count() == 1 || name.ends_with("mod.rs"))?;
        wrong.extend(found.outside.iter().map(|what| format!("{}: {what} comes from mod.rs", name.display())));
        imports.entry(module).or_default().extend(found.modules);
    }
    for (module, of) in &mut imports {
        of.remove(module);
    }
    ensure!(!imports.is_empty(), "no modules below {MACHINE}");
    if let Some(circle) = circle(&imports) {
        wrong.push(format!("these import each other: {}", circle.join(" -> ")));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// The module that a file belongs to, by its path below the machine's folder: the file, or the folder it is in.
fn module_of(path: &Path) -> Result<String> {
    let first = path.components().next().context("a file")?;
    Ok(Path::new(&first).with_extension("").to_string_lossy().into_owned())
}

/// What a file imports from the machine.
#[derive(Debug, Default, PartialEq)]
struct Found {
    modules: BTreeSet<String>,
    /// Names of `mod.rs` itself.
    outside: BTreeSet<String>,
}

/// Finds the imports of a file, without its unit tests. `super` is the machine in a file that is a module of it.
fn imports_of(text: &str, is_module: bool) -> Result<Found> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let code: String =
        code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect();
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

/// Modules that import from each other, the first one twice; nothing if there are none.
fn circle(imports: &Imports) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    imports.keys().find_map(|module| visit(module, imports, &mut Vec::new(), &mut done))
}

fn visit(module: &str, imports: &Imports, way: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<Vec<String>> {
    if let Some(at) = way.iter().position(|passed| passed == module) {
        let mut circle = way[at..].to_vec();
        circle.push(module.to_owned());
        return Some(circle);
    }
    if done.contains(module) {
        return None;
    }
    way.push(module.to_owned());
    let found = imports.get(module)?.iter().find_map(|other| visit(other, imports, way, done));
    way.pop();
    done.insert(module.to_owned());
    found
}

/// Checks that the daemon names every action that it carries out.
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
    fn a_circle_is_found_wherever_it_begins() {
        let imports = |pairs: &[(&str, &[&str])]| -> Imports {
            pairs
                .iter()
                .map(|(one, of)| ((*one).to_owned(), of.iter().map(|name| (*name).to_owned()).collect()))
                .collect()
        };
        assert_eq!(circle(&imports(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), None);
        let found = circle(&imports(&[("a", &["b"]), ("b", &["c"]), ("c", &["d"]), ("d", &["b"])]));
        assert_eq!(found.unwrap(), ["b", "c", "d", "b"]);
    }

    #[test]
    fn a_file_in_a_folder_belongs_to_the_folder() {
        for (path, module) in [("core.rs", "core"), ("groups/mod.rs", "groups"), ("groups/barrier.rs", "groups")] {
            assert_eq!(module_of(Path::new(path)).unwrap(), module);
        }
    }
}
