//! Finds the modules of a crate, what each of them defines, and the paths that it uses.
use super::tokens::{self, Token};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The parts of a path, such as `crate`, `queue`, `Entry`.
pub type Names = Vec<String>;

/// A module of a crate.
#[derive(Debug, Default)]
pub struct Module {
    /// The module's name; the crate's root has none.
    pub name: String,
    /// The module that declares this one; the crate's root has none.
    pub parent: Option<usize>,
    pub children: BTreeMap<String, usize>,
    /// What the file itself defines here.
    pub defined: BTreeSet<String>,
    /// The names that `use` brings in, each with its path.
    pub imported: BTreeMap<String, Names>,
    /// The modules that are imported as a whole (`use module::*`).
    pub globs: BTreeSet<Names>,
    /// All other paths with several parts.
    pub paths: BTreeSet<Names>,
    /// The types that get methods of their own here (`impl Type`), not those of a trait.
    pub impls: BTreeSet<Names>,
}

/// The words in front of the name of an item.
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static"];

/// Returns the modules of the crate whose root is this file. The root comes first.
pub fn of_crate(root: &Path) -> Result<Vec<Module>> {
    let folder = root.parent().context("a root is in a folder")?.to_owned();
    let mut modules = Vec::new();
    read_file(&mut modules, "", root, &folder, None)?;
    Ok(modules)
}

/// Adds the module in this file, whose submodules are in this folder, and returns its number.
fn read_file(
    modules: &mut Vec<Module>,
    name: &str,
    file: &Path,
    folder: &Path,
    parent: Option<usize>,
) -> Result<usize> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let tokens = tokens::without_tests(&tokens::of(&text));
    read_module(modules, name, &tokens, folder, parent).with_context(|| file.display().to_string())
}

/// Adds the module with this text, and returns its number.
fn read_module(
    modules: &mut Vec<Module>,
    name: &str,
    tokens: &[Token],
    folder: &Path,
    parent: Option<usize>,
) -> Result<usize> {
    let own = modules.len();
    modules.push(Module { name: name.to_owned(), parent, ..Module::default() });
    let mut place = 0;
    while let Some(token) = tokens.get(place) {
        let name = tokens.get(place + 1).and_then(Token::word).unwrap_or_default().to_owned();
        match token.word() {
            Some("mod") if tokens.get(place + 2) == Some(&Token::Sign(';')) => {
                let inner = folder.join(&name);
                let files = [folder.join(format!("{name}.rs")), inner.join("mod.rs")];
                let file =
                    files.iter().find(|path| path.exists()).with_context(|| format!("no file for mod {name}"))?;
                let child = read_file(modules, &name, file, &inner, Some(own))?;
                modules[own].children.insert(name, child);
                place += 3;
            }
            Some("mod") if tokens.get(place + 2) == Some(&Token::Sign('{')) => {
                let end = tokens::after_bracket(tokens, place + 2);
                let inside = &tokens[place + 3..end - 1];
                let child = read_module(modules, &name, inside, &folder.join(&name), Some(own))?;
                modules[own].children.insert(name, child);
                place = end;
            }
            // `use<'a>` is a bound, no import.
            Some("use") if tokens.get(place + 1) != Some(&Token::Sign('<')) => {
                let end = place + tokens[place..].iter().position(|token| *token == Token::Sign(';')).unwrap_or(0);
                ensure!(end > place, "a use without an end");
                read_use(&mut modules[own], &tokens[place + 1..end], &Names::new());
                place = end + 1;
            }
            Some("impl") if begins_item(tokens, place) => {
                place = after_angles(tokens, place + 1);
                let (path, end) = read_path(tokens, place);
                if tokens.get(after_angles(tokens, end)).is_some_and(|token| !token.is_word("for")) {
                    modules[own].impls.insert(path);
                }
            }
            Some("macro_rules") => {
                let name = tokens.get(place + 2).and_then(Token::word).unwrap_or_default().to_owned();
                modules[own].defined.insert(name);
                place += 3;
            }
            Some(word) if ITEMS.contains(&word) => {
                modules[own].defined.insert(name);
                place += 1;
            }
            Some(_) if tokens.get(place + 1) == Some(&Token::Path) => {
                let (names, next) = read_path(tokens, place);
                // After a sign such as `>` the path begins with a type, and is no path of modules.
                if place == 0 || tokens[place - 1] != Token::Path {
                    modules[own].paths.insert(names);
                }
                place = next;
            }
            _ => place += 1,
        }
    }
    Ok(own)
}

/// Returns whether an item begins at this place: in front of it is the end of another one, or of an attribute.
fn begins_item(tokens: &[Token], place: usize) -> bool {
    let before = place.checked_sub(1).map(|before| &tokens[before]);
    before.is_none_or(|token| matches!(token, Token::Sign('}' | ';' | ']')))
}

/// Returns the path at this place, and the place after it.
fn read_path(tokens: &[Token], place: usize) -> (Names, usize) {
    let mut names: Names = tokens.get(place).and_then(Token::word).map(str::to_owned).into_iter().collect();
    let mut next = place + 1;
    while let Some([Token::Path, Token::Word(name)]) = tokens.get(next..next + 2) {
        names.push(name.clone());
        next += 2;
    }
    (names, next)
}

/// Returns the place after the parameters `<...>` that begin at this place, if they do.
fn after_angles(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0;
    for (place, token) in tokens.iter().enumerate().skip(start) {
        match token {
            Token::Sign('<') => depth += 1,
            // Not the end of an arrow.
            Token::Sign('>') if tokens[place - 1] != Token::Sign('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if place == start { start } else { place + 1 };
        }
    }
    tokens.len()
}

/// Adds what a `use` brings in. `start` is the path in front of these tokens.
fn read_use(module: &mut Module, tokens: &[Token], start: &Names) {
    let mut names = start.clone();
    let mut place = 0;
    while let Some(token) = tokens.get(place) {
        match token {
            Token::Word(word) if word == "as" => break,
            Token::Word(word) => names.push(word.clone()),
            // A path that begins with `::` leads to another crate.
            Token::Path if place == 0 && start.is_empty() => return,
            Token::Path => {}
            Token::Sign('*') => {
                module.globs.insert(names);
                return;
            }
            Token::Sign('{') => {
                let inside = &tokens[place + 1..tokens::after_bracket(tokens, place) - 1];
                for part in parts(inside) {
                    read_use(module, part, &names);
                }
                return;
            }
            Token::Sign(_) => return,
        }
        place += 1;
    }
    if names.last().is_some_and(|last| last == "self") {
        names.pop();
    }
    let new = tokens.get(place + 1).and_then(Token::word).map(str::to_owned);
    if let Some(name) = new.or_else(|| names.last().cloned()) {
        // An item without a name of its own (`as _`) counts under its full path.
        let name = if name == "_" { names.join("::") } else { name };
        module.imported.insert(name, names);
    }
}

/// Returns the parts of a list between its commas.
fn parts(tokens: &[Token]) -> Vec<&[Token]> {
    let mut parts = Vec::new();
    let (mut start, mut place) = (0, 0);
    while place < tokens.len() {
        match tokens[place] {
            Token::Sign('{') => place = tokens::after_bracket(tokens, place),
            Token::Sign(',') => {
                parts.push(&tokens[start..place]);
                place += 1;
                start = place;
            }
            _ => place += 1,
        }
    }
    parts.push(&tokens[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}
