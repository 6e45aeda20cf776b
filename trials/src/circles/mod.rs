//! Finds circles of modules, and methods of a type outside its module. A module and its submodules are one: a parent is made
//! of its children, and a child may use what its parent defines. The modules with the same parent, each with all inside it, may
//! not use each other in a circle. The crate's root counts as one of the modules that it declares. A `mod` is no use, a `pub
//! use` is one. Who imports a name that another module only passes on (`pub use`) uses the module that defines it. What is
//! compiled only for tests does not count.
mod modules;
mod tokens;

use crate::common::root;
use anyhow::{Result, ensure};
use modules::{Module, Names};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Types of which modules above them have methods, each with the reason.
const WITH_METHODS_ABOVE: &[(&str, &str)] = &[
    ("pvm-core: machine::parts", "the order of the machine's modules is checked by `layers`"),
    ("pvm-core: machine::core", "the order of the machine's modules is checked by `layers`"),
    ("pvm-core: wire", "the text is that of the dialogue with a host that starts"),
    ("pvm-fmp: heap", "a block is read from a socket beside all other system calls of that kind"),
];
/// The most names that are followed from one `pub use` to the next.
const STEPS_MAX: usize = 20;

/// For each module, the modules with the same parent that it uses; each use as a text.
type Uses = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Returns the crates, by name: where they are.
fn crates() -> Result<BTreeMap<String, PathBuf>> {
    let named = |path: PathBuf| (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path);
    root().join("crates").read_dir()?.map(|entry| Ok(named(entry?.path()))).collect()
}

/// Checks that the modules of no crate form a circle.
pub fn are_nowhere() -> Result<()> {
    let mut found = Vec::new();
    for (name, folder) in crates()? {
        found.extend(of_crate(&folder)?.iter().map(|circle| format!("{name}: {circle}")));
    }
    found.sort();
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

/// Checks that the methods of each type are in the type's module, or in modules inside it. Calls of methods are no uses
/// that [`are_nowhere`] sees.
pub fn methods_are_with_their_types() -> Result<()> {
    let mut found = Vec::new();
    for (name, folder) in crates()? {
        found.extend(far_methods(&folder)?.into_iter().map(|(home, text)| (format!("{name}: {home}"), text)));
    }
    for (listed, _) in WITH_METHODS_ABOVE {
        ensure!(found.iter().any(|(home, _)| home == listed), "{listed}: take it from WITH_METHODS_ABOVE");
        found.retain(|(home, _)| home != listed);
    }
    let texts: Vec<String> = found.iter().map(|(home, text)| format!("{home} has {text}")).collect();
    ensure!(texts.is_empty(), "{}", texts.join("\n"));
    Ok(())
}

/// Returns the types with methods outside their module: the module, and a text.
fn far_methods(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for modules in modules_of(folder)? {
        for (from, module) in modules.iter().enumerate() {
            let homes = module.impls.iter().filter_map(|path| match follow(&modules, from, path, 0)? {
                End::Item(home) if !line(&modules, from).contains(&home) => Some((home, path)),
                _ => None,
            });
            found.extend(homes.map(|(home, path)| {
                let text = format!("{}, with methods in {}", path.join("::"), path_of(&modules, from));
                (path_of(&modules, home), text)
            }));
        }
    }
    Ok(found)
}

/// Returns the circles of the crate in this folder, each as a text.
fn of_crate(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for modules in modules_of(folder)? {
        for uses in uses(&modules).values() {
            texts.extend(circles(uses).iter().map(|circle| shown(circle, uses)));
        }
    }
    Ok(texts)
}

/// Returns the modules of the library and of the program of the crate in this folder.
fn modules_of(folder: &Path) -> Result<Vec<Vec<Module>>> {
    let roots = ["lib.rs", "main.rs"].map(|name| folder.join("src").join(name));
    roots.iter().filter(|root| root.exists()).map(|root| modules::of_crate(root)).collect()
}

/// Returns, for each parent, what its children use of each other.
fn uses(modules: &[Module]) -> BTreeMap<usize, Uses> {
    let mut uses: BTreeMap<usize, Uses> = BTreeMap::new();
    for (from, module) in modules.iter().enumerate() {
        let paths: BTreeSet<&Names> =
            module.paths.iter().chain(module.imported.values()).chain(&module.globs).collect();
        for path in paths {
            let ends = match follow(modules, from, path, 0) {
                Some(End::Item(other)) => vec![other],
                Some(End::Module(other)) if module.globs.contains(path) => all_of(modules, other),
                _ => Vec::new(),
            };
            for to in ends {
                let Some((parent, one, other)) = siblings(modules, from, to) else { continue };
                let text = format!("{} uses {}", path_of(modules, from), path_of(modules, to));
                let text = format!("{text}: {}", path.last().map_or("", String::as_str));
                let of_parent = uses.entry(parent).or_default();
                let of_one = of_parent.entry(path_of(modules, one)).or_default();
                of_one.entry(path_of(modules, other)).or_default().insert(text);
            }
        }
    }
    uses
}

/// Returns the closest module that contains both modules, and its children that contain one each. Returns `None` if
/// one of the modules contains the other. The root counts as a child of itself, so it contains nothing.
fn siblings(modules: &[Module], one: usize, other: usize) -> Option<(usize, usize, usize)> {
    let (mut ones, mut others) = (line(modules, one), line(modules, other));
    [&mut ones, &mut others].into_iter().filter(|line| line.len() == 1).for_each(|line| line.push(0));
    let common = ones.iter().zip(&others).take_while(|(one, other)| one == other).count();
    Some((ones[common - 1], *ones.get(common)?, *others.get(common)?))
}

/// Returns the modules that contain a module, from the crate's root to the module itself.
fn line(modules: &[Module], module: usize) -> Vec<usize> {
    let mut line: Vec<usize> = std::iter::successors(Some(module), |&module| modules[module].parent).collect();
    line.reverse();
    line
}

/// Returns a module's path in its crate.
fn path_of(modules: &[Module], module: usize) -> String {
    if module == 0 {
        return "the root".to_owned();
    }
    let line = line(modules, module);
    line[1..].iter().map(|&part| modules[part].name.as_str()).collect::<Vec<_>>().join("::")
}

/// Where a path leads.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Module(usize),
    /// To an item that this module defines.
    Item(usize),
}

/// Returns where a path leads that this module uses, or `None` if it leads out of the crate.
fn follow(modules: &[Module], from: usize, path: &[String], steps: usize) -> Option<End> {
    let (first, rest) = path.split_first()?;
    let start = match &**first {
        "crate" => End::Module(0),
        "self" => End::Module(from),
        "super" => End::Module(modules[from].parent?),
        // A plain name at the start may be a crate, a type or a variable.
        name => named(modules, from, name, rest.is_empty(), steps)?,
    };
    rest.iter().enumerate().try_fold(start, |end, (place, name)| match end {
        End::Item(_) => Some(end),
        End::Module(module) if name == "super" => Some(End::Module(modules[module].parent?)),
        End::Module(module) => {
            Some(named(modules, module, name, place + 1 == rest.len(), steps).unwrap_or(End::Item(module)))
        }
    })
}

/// Returns what a name in a module means: an item that the module defines or imports, or a submodule. The last name of
/// a path is preferably an item.
fn named(modules: &[Module], of: usize, name: &str, is_last: bool, steps: usize) -> Option<End> {
    let module = &modules[of];
    let child = module.children.get(name).map(|&child| End::Module(child));
    if let Some(end) = child.filter(|_| !is_last) {
        return Some(end);
    }
    if module.defined.contains(name) {
        return Some(End::Item(of));
    }
    if steps == STEPS_MAX {
        return None;
    }
    let of_import = || module.imported.get(name).and_then(|path| follow(modules, of, path, steps + 1));
    let of_globs = || {
        module.globs.iter().find_map(|path| match follow(modules, of, path, steps + 1)? {
            End::Module(other) => named(modules, other, name, is_last, steps + 1),
            End::Item(_) => None,
        })
    };
    child.or_else(of_import).or_else(of_globs)
}

/// Returns the modules that define what a module defines or passes on.
fn all_of(modules: &[Module], of: usize) -> Vec<usize> {
    let passed_on = modules[of].imported.values().filter_map(|path| match follow(modules, of, path, 0)? {
        End::Item(other) => Some(other),
        End::Module(_) => None,
    });
    passed_on.chain([of]).collect()
}

/// Returns the circles: sets of modules that all use one another, directly or through others.
fn circles(uses: &Uses) -> BTreeSet<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|module| (&**module, reached(uses, module))).collect();
    let mut circles = BTreeSet::new();
    for (&module, theirs) in reached.iter().filter(|(module, theirs)| theirs.contains(*module)) {
        let back = |other: &&str| reached.get(other).is_some_and(|theirs| theirs.contains(module));
        circles.insert(theirs.iter().copied().filter(back).collect());
    }
    circles
}

/// Returns the modules that a module uses, by way of others too.
fn reached<'a>(uses: &'a Uses, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(module) = left.pop() {
        for other in uses.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(&**other) {
                left.push(other);
            }
        }
    }
    reached
}

/// Returns a text that says which modules of a circle use what of each other.
fn shown(circle: &BTreeSet<&str>, uses: &Uses) -> String {
    let names: Vec<&str> = circle.iter().copied().collect();
    let mut text = format!("a circle of {}", names.join(", "));
    for module in names {
        for (_, lines) in uses[module].iter().filter(|(other, _)| circle.contains(&***other)) {
            lines.iter().for_each(|line| text += &format!("\n  {line}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Returns the folder of a crate with these files.
    fn folder_of(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join("src").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    /// Returns the circles of a crate with these files.
    fn of_files(files: &[(&str, &str)]) -> Vec<String> {
        of_crate(folder_of(files).path()).unwrap()
    }

    #[test]
    fn a_circle_is_found() {
        let by_use = "use crate::b::{self, C as D};\npub struct A(D);";
        for (a, b) in [(by_use, "super::a::A"), ("fn a() { super::b::c(); }", "crate::a::A")] {
            let b = format!("pub struct C(Vec<{b}>);\nfn c() {{}}");
            let circles = of_files(&[("lib.rs", "mod a;\nmod b;"), ("a.rs", a), ("b.rs", &b)]);
            let [circle] = &circles[..] else { panic!("{circles:?}") };
            assert!(circle.starts_with("a circle of a, b\n  a uses b: ") && circle.ends_with("\n  b uses a: A"));
        }
    }

    #[test]
    fn a_circle_of_folders_is_found_where_they_meet() {
        let circles = of_files(&[
            ("main.rs", "mod a;\nmod b;"),
            ("a/mod.rs", "mod c;\nmod d;"),
            ("a/c.rs", "use crate::b::*;"),
            ("a/d.rs", "pub struct D;"),
            ("b/mod.rs", "mod e;\npub use e::E;"),
            ("b/e.rs", "use crate::a::d::D;\npub struct E(D);"),
        ]);
        assert_eq!(circles, ["a circle of a, b\n  a::c uses b: b\n  a::c uses b::e: b\n  b::e uses a::d: D"]);
    }

    #[test]
    fn the_root_can_be_in_a_circle() {
        let circles =
            of_files(&[("lib.rs", "mod a;\npub use a::A;\npub struct B;"), ("a.rs", "pub struct A(crate::B);")]);
        assert_eq!(circles, ["a circle of a, the root\n  a uses the root: B\n  the root uses a: A"]);
    }

    #[test]
    fn uses_in_one_direction_are_no_circle() {
        // The children of `b` use what their parent defines, and `b` passes on what they define.
        let circles = of_files(&[
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;"),
            ("a.rs", "use crate::b::{C, D};\nuse crate::B;\npub struct A;"),
            ("b/mod.rs", "mod c;\nmod d;\npub use c::C;\npub use d::D;\npub struct B;"),
            ("b/c.rs", "use super::{B, D};\npub struct C(B, std::a::A);"),
            ("b/d.rs", "use super::B;\n/// See [`super::c::C`] and crate::a::A.\npub struct D(B);"),
        ]);
        assert_eq!(circles, Vec::<String>::new());
    }

    #[test]
    fn methods_far_from_their_type_are_found() {
        let folder = folder_of(&[
            ("lib.rs", "mod a;\nmod b;"),
            ("a/mod.rs", "mod c;\nmod e;\npub struct A<T>(T);\nimpl<T> A<T> {}"),
            ("a/c.rs", "impl<F: Fn() -> u8> super::A<F> where F: Copy {}\npub struct D;"),
            ("a/e.rs", "use super::c::D;\nimpl Clone for D {}\nfn f() -> impl D {}\nimpl D {}"),
            ("b.rs", "use crate::a::A;\n#[allow(x)]\nimpl A<u8> {}\nimpl<T> From<A<T>> for B {}\nstruct B;\nimpl B {}"),
        ]);
        let far = |home: &str, text: &str| (home.to_owned(), text.to_owned());
        let found = far_methods(folder.path()).unwrap();
        assert_eq!(found, [far("a::c", "D, with methods in a::e"), far("a", "A, with methods in b")]);
    }

    #[test]
    fn tests_are_in_no_circle() {
        let circles = of_files(&[
            ("lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod b_tests;"),
            ("a.rs", "use crate::b::B;\npub struct A;"),
            ("b.rs", "pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"),
            ("b_tests.rs", "use crate::a::A;"),
        ]);
        assert_eq!(circles, Vec::<String>::new());
    }
}
