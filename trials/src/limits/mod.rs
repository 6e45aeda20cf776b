//! `cargo xtask limits`: writes docs/limits.md, the limits of everything that other users, hosts or tasks can fill.
//!
//! A limit is a constant whose comment ends with a list: who can fill it, its setting, what happens when it is reached,
//! and the test that reaches it (STYLE.md, "Structure"). The page is made of these comments. The lint checks that the
//! page is current, that the tests exist, and that a setting is read by the code and described by a manual page.
mod source;
mod value;

use crate::common::{files_under, root};
use anyhow::{Context, Result, ensure};
use regex::Regex;
use source::{Constants, Limit, MARK};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The text above the tables.
const INTRODUCTION: &str = "\
# Limits

Whatever others can fill (other users, strangers on the network, other hosts of a machine, other tasks) has
a limit. This page is made from the comments at the constants in the source by `cargo xtask limits`; the tests
that it names reach the limits. A setting is an environment variable, of the daemon unless `hpvm(7)` says
otherwise. What bounds only how long others wait for their turn is left out.
";

/// The crates, and the title above the table of each.
const PARTS: &[(&str, &str)] = &[
    ("pvm-net", "Connections between hosts"),
    ("pvmd", "The daemon"),
    ("pvm-core", "The rules of the machine"),
    ("pvm-link", "Between a task and its daemon"),
    ("pvm-fmp", "Shared memory"),
    ("pvm-task", "Tasks"),
    ("libpvm3", "The C library"),
    ("pvm-tools", "Console and `pvm run`"),
];

/// Runs the command.
pub fn run(arguments: &[String]) -> Result<()> {
    ensure!(arguments.is_empty(), "limits takes no arguments");
    let path = document();
    std::fs::write(&path, text(&limits()?)).with_context(|| format!("cannot write {}", path.display()))
}

/// Checks that the document is what the command would write, and that the tests and variables in it exist.
pub fn is_current() -> Result<()> {
    let limits = limits()?;
    let written = std::fs::read_to_string(document()).unwrap_or_default();
    ensure!(written == text(&limits), "docs/limits.md is outdated: run cargo xtask limits");
    let wrong = wrong(&limits, &Facts::read()?);
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}

fn document() -> PathBuf {
    root().join("docs/limits.md")
}

/// Returns all limits, ordered by part, file and line.
fn limits() -> Result<Vec<Limit>> {
    let mut constants = Constants::default();
    let mut marks = 0;
    for path in files_under(&["crates"], &["rs"])? {
        let text = std::fs::read_to_string(&path)?;
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        marks += text.lines().filter(|line| line.trim_start().starts_with(MARK)).count();
        constants.add(&name, &text).with_context(|| name.clone())?;
    }
    let limits = constants.limits()?;
    ensure!(
        limits.len() == marks,
        "{marks} comments declare limits, but only {} of them belong to constants",
        limits.len()
    );
    Ok(limits)
}

/// The facts with which the tables are compared.
struct Facts {
    /// The names of all unit tests.
    tests: BTreeSet<String>,
    /// The variables that the programs in `crates` read.
    read: BTreeSet<String>,
    /// The words of the manual pages.
    documented: BTreeSet<String>,
}

impl Facts {
    fn read() -> Result<Facts> {
        let mut facts = Facts { tests: BTreeSet::new(), read: BTreeSet::new(), documented: BTreeSet::new() };
        let variable = Regex::new("\"(H?PVM[A-Z_]+)\"").expect("is one");
        for path in files_under(&["crates"], &["rs"])? {
            let text = std::fs::read_to_string(&path)?;
            facts.tests.extend(tests_of(&text));
            facts.read.extend(variable.captures_iter(&text).map(|found| found[1].to_owned()));
        }
        for path in files_under(&["man"], &["1", "7", "toml"])? {
            let text = std::fs::read_to_string(&path)?;
            facts.documented.extend(text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned));
        }
        Ok(facts)
    }
}

/// Returns the names of the functions that are tests.
fn tests_of(text: &str) -> Vec<String> {
    let mut is_test = false;
    let mut names = Vec::new();
    for line in text.lines().map(str::trim) {
        let function = line.strip_prefix("fn ").and_then(|rest| rest.split(['(', '<']).next());
        match function {
            _ if line == "#[test]" => is_test = true,
            Some(name) if is_test => {
                names.push(name.to_owned());
                is_test = false;
            }
            _ => is_test &= line.starts_with("#[") || line.starts_with("//"),
        }
    }
    names
}

/// Returns the errors in the comments of limits.
fn wrong(limits: &[Limit], facts: &Facts) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut add = |limit: &Limit, what: String| wrong.push(format!("{}, {}: {what}", limit.file, limit.name));
    for limit in limits {
        let tests = quoted(&limit.test);
        if tests.is_empty() {
            add(limit, "names no test".into());
        }
        for test in tests.iter().filter(|test| !facts.tests.contains(**test)) {
            add(limit, format!("there is no test {test}"));
        }
        let variables = quoted(&limit.setting);
        if variables.is_empty() && !limit.setting.starts_with("none, ") {
            add(limit, "the setting is neither a variable nor `none, ` and why".into());
        }
        for variable in variables.iter().filter(|name| name.contains("PVM")) {
            if !facts.read.contains(*variable) {
                add(limit, format!("nobody asks for {variable}"));
            }
            if !facts.documented.contains(*variable) {
                add(limit, format!("no manual page tells of {variable}"));
            }
        }
    }
    wrong
}

/// Returns the words between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the page.
fn text(limits: &[Limit]) -> String {
    let mut page = INTRODUCTION.to_owned();
    for (part, title) in PARTS {
        let home = format!("crates/{part}/");
        let rows: Vec<&Limit> = limits.iter().filter(|limit| limit.file.starts_with(&home)).collect();
        if rows.is_empty() {
            continue;
        }
        page += &format!("\n## {title} (`{part}`)\n\n");
        page += "| limit | what it bounds | who fills it | default | setting | when it is reached | test |\n";
        page += "| --- | --- | --- | --- | --- | --- | --- |\n";
        rows.iter().for_each(|limit| page += &row(limit, &home));
    }
    page
}

fn row(limit: &Limit, home: &str) -> String {
    let place = limit.file.strip_prefix(home).unwrap_or(&limit.file);
    let name =
        format!("`{}` ({})", limit.name, Path::new(place).strip_prefix("src").unwrap_or(Path::new(place)).display());
    let columns = [&name, &limit.what, &limit.filled, &limit.default, &limit.setting, &limit.reached, &limit.test];
    let columns: Vec<String> = columns.iter().map(|column| column.replace('|', "\\|")).collect();
    format!("| {} |\n", columns.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(setting: &str, test: &str) -> Limit {
        let text = |text: &str| text.to_owned();
        Limit {
            file: text("crates/pvmd/src/a.rs"),
            name: text("A_MAX"),
            what: text("What there is."),
            filled: text("tasks | hosts"),
            default: text("7"),
            setting: text(setting),
            reached: text("no more"),
            test: text(test),
        }
    }

    fn facts() -> Facts {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Facts { tests: set(&["a_is_full"]), read: set(&["HPVM_A", "HPVM_B"]), documented: set(&["HPVM_A", "HPVM_C"]) }
    }

    #[test]
    fn a_limit_needs_a_test_that_exists_and_a_setting_that_is_read_and_told() {
        let wrong = |setting, test| wrong(&[limit(setting, test)], &facts()).len();
        assert_eq!(wrong("`HPVM_A`", "`a_is_full`"), 0);
        assert_eq!(wrong("none, the form of frames fixes it", "`a_is_full`"), 0);
        assert_eq!(wrong("none", "`a_is_full`"), 1);
        assert_eq!(wrong("`HPVM_A`", "`a_is_empty`"), 1);
        assert_eq!(wrong("`HPVM_A`", "there will be one"), 1);
        assert_eq!(wrong("`HPVM_B`", "`a_is_full`"), 1);
        assert_eq!(wrong("`HPVM_C`", "`a_is_full`"), 1);
    }

    #[test]
    fn a_row_stands_in_the_table_of_its_part() {
        let page = text(&[limit("`HPVM_A`", "`a_is_full`")]);
        assert!(page.contains("## The daemon (`pvmd`)\n\n| limit "), "{page}");
        let row = "| `A_MAX` (a.rs) | What there is. | tasks \\| hosts | 7 | `HPVM_A` | no more | `a_is_full` |\n";
        assert!(page.ends_with(row), "{page}");
    }

    #[test]
    fn functions_are_tests_where_an_attribute_says_so() {
        let text = "#[test]\n#[cfg(unix)]\nfn one() {\n}\nfn two() {}\n    #[test]\n    fn three() {}\n";
        assert_eq!(tests_of(text), ["one", "three"]);
    }
}
