//! The constants of the sources, and the comments of the constants that are limits.
use super::value::{self, Value};
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;

/// The line of a comment that makes a constant a limit.
pub const MARK: &str = "/// * Filled by:";

/// A limit.
pub struct Limit {
    /// The file, relative to the root of the source tree.
    pub file: String,
    /// The constant.
    pub name: String,
    /// The first paragraph of its comment.
    pub what: String,
    /// Who can fill it.
    pub filled: String,
    /// Its value, with the unit.
    pub default: String,
    /// What sets it.
    pub setting: String,
    /// What happens when it is reached.
    pub reached: String,
    /// The test that reaches it.
    pub test: String,
}

struct Constant {
    file: String,
    name: String,
    comment: Vec<String>,
    expression: String,
}

/// All constants.
#[derive(Default)]
pub struct Constants {
    all: Vec<Constant>,
    /// The indexes in `all`, by name.
    names: HashMap<String, Vec<usize>>,
}

impl Constants {
    /// Adds the constants of a file.
    pub fn add(&mut self, file: &str, text: &str) -> Result<()> {
        let mut comment = Vec::new();
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if let Some(words) = line.strip_prefix("///") {
                comment.push(words.trim().to_owned());
                continue;
            }
            if line.starts_with("#[") {
                continue;
            }
            if let Some(rest) = declaration(line) {
                let mut whole = rest.to_owned();
                while !whole.contains(';') {
                    whole += lines.next().context("a constant has no end")?;
                }
                let (name, rest) = whole.split_once(':').context("a constant has no type")?;
                if let Some((_, expression)) = rest.split_once('=') {
                    let expression = expression.trim().trim_end_matches(';').to_owned();
                    let names = self.names.entry(name.to_owned()).or_default();
                    names.push(self.all.len());
                    let (file, name) = (file.to_owned(), name.to_owned());
                    self.all.push(Constant { file, name, comment: std::mem::take(&mut comment), expression });
                }
            }
            comment.clear();
        }
        Ok(())
    }

    /// Returns the limits.
    pub fn limits(&self) -> Result<Vec<Limit>> {
        let is_limit = |constant: &&Constant| constant.comment.iter().any(|line| line.starts_with("* Filled by:"));
        let limits = self.all.iter().filter(is_limit);
        limits.map(|one| self.limit(one).with_context(|| format!("{}, {}", one.file, one.name))).collect()
    }

    fn limit(&self, constant: &Constant) -> Result<Limit> {
        let items = items(&constant.comment)?;
        let item = |name: &str| {
            let found = items.iter().find(|(key, _)| key == name).map(|(_, text)| text.clone());
            found.filter(|text| !text.is_empty()).with_context(|| format!("`{name}:` is missing"))
        };
        let what = constant.comment.iter().take_while(|line| !line.is_empty() && !line.starts_with("* "));
        let what = what.map(String::as_str).collect::<Vec<_>>().join(" ");
        let default = match item("Default") {
            Ok(text) => text,
            Err(_) => self.value(constant, 0)?.with_unit(&constant.name),
        };
        for (key, _) in &items {
            let known = ["Filled by", "Default", "Setting", "Reached", "Test"].contains(&key.as_str());
            ensure!(known, "`{key}:` is unknown");
        }
        let (filled, setting) = (item("Filled by")?, item("Setting")?);
        let (reached, test) = (item("Reached")?, item("Test")?);
        let (file, name) = (constant.file.clone(), constant.name.clone());
        Ok(Limit { file, name, what: without_links(&what), filled, default, setting, reached, test })
    }

    fn value(&self, constant: &Constant, depth: usize) -> Result<Value> {
        ensure!(depth < 10, "constants refer to one another in a circle");
        value::evaluate(&constant.expression, &|name| {
            let found = self.nearest(name, &constant.file).with_context(|| format!("there is no {name}"))?;
            self.value(found, depth + 1)
        })
    }

    /// Returns the constant with that name: the one in the same file, otherwise one in the same crate, otherwise the
    /// only one of that name.
    fn nearest(&self, name: &str, file: &str) -> Option<&Constant> {
        let all: Vec<&Constant> = self.names.get(name)?.iter().map(|place| &self.all[*place]).collect();
        let home = |file: &str| file.split('/').take(2).collect::<Vec<_>>().join("/");
        let near = all.iter().find(|one| one.file == file).or(all.iter().find(|one| home(&one.file) == home(file)));
        near.or((all.len() == 1).then(|| &all[0])).copied()
    }
}

/// Returns what follows `const ` in a line that declares a constant of any visibility.
fn declaration(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) => rest.split_once("const ")?.1,
        None => line.strip_prefix("const ")?,
    };
    let ends = line.find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_')?;
    (ends > 0 && line[ends..].starts_with(':')).then_some(line)
}

/// Returns the items of a comment's list.
fn items(comment: &[String]) -> Result<Vec<(String, String)>> {
    let mut items: Vec<(String, String)> = Vec::new();
    for line in comment {
        match (line.strip_prefix("* "), items.last_mut()) {
            (Some(item), _) => match item.split_once(':') {
                Some((key, text)) => items.push((key.to_owned(), text.trim().to_owned())),
                None => bail!("`{item}` has no colon"),
            },
            (None, Some((_, text))) => *text = format!("{text} {line}").trim_end().to_owned(),
            (None, None) => {}
        }
    }
    Ok(items)
}

/// Removes the brackets of links, since links would lead nowhere on the page.
fn without_links(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
/// What others may hold of [`Thing`], in bytes
/// and more.
///
/// * Filled by: hosts,
///   and tasks
/// * Setting: none, nobody needs it
/// * Reached: no more
/// * Test: `it_ends`
#[allow(unused)]
pub(crate) const HELD_BYTES_MAX: usize = 2 * STEP;
/// No limit.
const STEP: usize = 1 << 20;
";

    #[test]
    fn a_constant_whose_comment_says_who_fills_it_is_a_limit() {
        let mut constants = Constants::default();
        constants.add("crates/a/src/b.rs", TEXT).unwrap();
        let limits = constants.limits().unwrap();
        let [limit] = &limits[..] else { panic!("{}", limits.len()) };
        assert_eq!((&*limit.name, &*limit.default), ("HELD_BYTES_MAX", "2 MiB"));
        assert_eq!(limit.what, "What others may hold of `Thing`, in bytes and more.");
        assert_eq!((&*limit.filled, &*limit.test), ("hosts, and tasks", "`it_ends`"));
    }

    #[test]
    fn a_limit_that_does_not_say_all_is_an_error() {
        for missing in ["Setting", "Reached", "Test"] {
            let mut constants = Constants::default();
            let text: Vec<&str> = TEXT.lines().filter(|line| !line.contains(&format!("* {missing}:"))).collect();
            constants.add("crates/a/src/b.rs", &text.join("\n")).unwrap();
            assert!(constants.limits().is_err(), "{missing}");
        }
        let mut constants = Constants::default();
        constants.add("crates/a/src/b.rs", &TEXT.replace("Reached", "Then")).unwrap();
        assert!(constants.limits().is_err());
    }
}
