//! Finds the modules of a crate, what each of them defines, and the paths that it uses.
use super::tokens::{self, Token};
use anyhow::{Context, Result};
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
    tokens::of(&text)
        .and_then(|tokens| read_module(modules, name, &tokens, folder, parent))
        .with_context(|| file.display().to_string())
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
    read_tokens(modules, own, tokens, folder)?;
    Ok(own)
}

/// Adds what these tokens of a module define and use, and its submodules.
fn read_tokens(modules: &mut Vec<Module>, own: usize, tokens: &[Token], folder: &Path) -> Result<()> {
    let mut rest = tokens;
    let mut before = None;
    while !rest.is_empty() {
        let length = match rest {
            [Token::Word(word), Token::Word(name), Token::Sign(';'), ..] if word == "mod" => {
                let inner = folder.join(name);
                let files = [folder.join(format!("{name}.rs")), inner.join("mod.rs")];
                let file =
                    files.iter().find(|path| path.exists()).with_context(|| format!("no file for mod {name}"))?;
                let child = read_file(modules, name, file, &inner, Some(own))?;
                modules[own].children.insert(name.clone(), child);
                3
            }
            [Token::Word(word), Token::Word(name), Token::Group('{', inside), ..] if word == "mod" => {
                let child = read_module(modules, name, inside, &folder.join(name), Some(own))?;
                modules[own].children.insert(name.clone(), child);
                3
            }
            // `use<'a>` is a bound, no import.
            [Token::Word(word), next, ..] if word == "use" && *next != Token::Sign('<') => {
                let end = rest.iter().position(|token| *token == Token::Sign(';')).context("a use without an end")?;
                read_use(&mut modules[own], &rest[1..end], &Names::new());
                end + 1
            }
            [Token::Word(word), after @ ..] if word == "impl" && begins_item(before) => {
                let from = after_angles(after);
                let names = from.first().and_then(Token::word).map_or_else(Names::new, |first| path(first, &from[1..]));
                let to = &from[(2 * names.len()).saturating_sub(1)..];
                if after_angles(to).first().and_then(Token::word) != Some("for") {
                    modules[own].impls.insert(names);
                }
                rest.len() - to.len()
            }
            [Token::Word(word), Token::Sign('!'), Token::Word(name), ..] if word == "macro_rules" => {
                modules[own].defined.insert(name.clone());
                3
            }
            [Token::Word(word), Token::Word(name), ..] if ITEMS.contains(&&**word) => {
                modules[own].defined.insert(name.clone());
                1
            }
            [Token::Word(word), Token::Path, ..] => {
                let names = path(word, &rest[1..]);
                let length = 2 * names.len() - 1;
                // After a sign such as `>` the path begins with a type, and is no path of modules.
                if before != Some(&Token::Path) {
                    modules[own].paths.insert(names);
                }
                length
            }
            [Token::Group(_, inside), ..] => {
                read_tokens(modules, own, inside, folder)?;
                1
            }
            _ => 1,
        };
        before = Some(&rest[length - 1]);
        rest = &rest[length..];
    }
    Ok(())
}

/// Returns whether an item begins behind this token: the end of another one, or of an attribute.
fn begins_item(before: Option<&Token>) -> bool {
    before.is_none_or(|token| matches!(token, Token::Sign(';') | Token::Group('{' | '[', _)))
}

/// Returns the tokens behind the parameters `<...>`, if these begin here.
fn after_angles(tokens: &[Token]) -> &[Token] {
    let mut depth = 0;
    for (place, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('<') => depth += 1,
            // Not the end of an arrow.
            Token::Sign('>') if tokens[place - 1] != Token::Sign('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if place == 0 { tokens } else { &tokens[place + 1..] };
        }
    }
    &[]
}

/// Returns the path that begins with this name.
fn path(first: &str, mut rest: &[Token]) -> Names {
    let mut names = vec![first.to_owned()];
    while let [Token::Path, Token::Word(name), after @ ..] = rest {
        names.push(name.clone());
        rest = after;
    }
    names
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
            Token::Group(_, inside) => {
                tokens::parts(inside).for_each(|part| read_use(module, part, &names));
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
