//! Reads docs/compatibility.toml.
use super::evidence::Evidence;
use crate::build::exported;
use crate::common::{files_under, root};
use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeSet;

/// The number of the original's defects.
const DEFECTS: u32 = 62;

/// The contents of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    pub absent: Vec<Absent>,
    pub option: Vec<Item>,
    pub command: Vec<Item>,
    pub spawn_option: Vec<Item>,
    pub console: Vec<Item>,
    pub switch: Vec<Item>,
    pub hostfile: Vec<Item>,
    pub variable: Vec<Item>,
    pub file: Vec<Item>,
    pub defect: Vec<Defect>,
}

/// Names of the original that hpvm lacks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absent {
    pub names: Vec<String>,
    pub note: String,
}

/// The status of an entry.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Works,
    Accepted,
    No,
}

impl Status {
    /// Returns the text in tables.
    pub fn text(self) -> &'static str {
        match self {
            Status::Works => "works",
            Status::Accepted => "accepted, no effect",
            Status::No => "no",
        }
    }
}

/// An entry of a table, such as an option, a command or a variable.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    pub name: String,
    pub status: Status,
    #[serde(default)]
    pub note: String,
    /// Cases that the document names in addition to those found by a search for words.
    #[serde(default)]
    pub cases: Vec<String>,
    /// The words to search for instead of the name.
    pub search_words: Option<Vec<String>>,
}

/// The status of a defect.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Done,
    Kept,
}

/// A defect of the original.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Defect {
    pub id: String,
    pub what: String,
    pub state: State,
    #[serde(default)]
    pub how: String,
    #[serde(default)]
    pub cases: Vec<String>,
    #[serde(default)]
    pub tests: Vec<String>,
}

impl Facts {
    /// Reads the file.
    pub fn read() -> Result<Facts> {
        let path = root().join("docs/compatibility.toml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("cannot understand {}", path.display()))
    }

    /// Checks that the file agrees with the sources as far as a program can tell.
    pub fn check(&self, evidence: &Evidence) -> Result<()> {
        let expected: Vec<String> = (1..=DEFECTS).map(|number| format!("D{number}")).collect();
        let found: Vec<&str> = self.defect.iter().map(|defect| &*defect.id).collect();
        ensure!(found == expected, "the defects are not D1 to D{DEFECTS} in order");
        let items = [&self.option, &self.command, &self.spawn_option, &self.console];
        let more = [&self.switch, &self.hostfile, &self.variable, &self.file];
        let named = items.into_iter().chain(more).flatten().flat_map(|item| &item.cases);
        for case in named.chain(self.defect.iter().flat_map(|defect| &defect.cases)) {
            ensure!(evidence.has(case), "there is no case {case}");
        }
        let exported = exported(&root().join("crates/libpvm3/exports.map"))?;
        let is_there = |name: &&String| exported.contains(name);
        let there: Vec<&String> = self.absent.iter().flat_map(|absent| &absent.names).filter(is_there).collect();
        ensure!(there.is_empty(), "the library exports {there:?}, which an [[absent]] entry lists");
        for defect in &self.defect {
            defect.check(evidence).with_context(|| defect.id.clone())?;
        }
        same("commands", &self.command, quoted("crates/pvm-tools/src/console/help.rs", COMMAND)?)?;
        same("options", &self.option, quoted("include/pvm3.h", OPTION)?)?;
        for file in VARIABLES_IN {
            let known: BTreeSet<&str> = self.variable.iter().map(|item| &*item.name).collect();
            let unknown: Vec<String> =
                quoted(file, VARIABLE)?.into_iter().filter(|name| !known.contains(&**name)).collect();
            ensure!(unknown.is_empty(), "docs/compatibility.toml lacks the variables {}", unknown.join(" "));
        }
        Ok(())
    }
}

impl Defect {
    /// Checks that a case or a test shows the defect, and that the test exists.
    fn check(&self, evidence: &Evidence) -> Result<()> {
        let shown = !evidence.of_defect(&self.id).is_empty() || !self.cases.is_empty() || !self.tests.is_empty();
        ensure!(shown, "no case and no test shows it");
        for test in self.tests.iter().filter_map(|test| test.strip_prefix("test ")) {
            let pattern = format!("fn {test}(");
            let mut sources = files_under(&["crates"], &["rs"])?.into_iter();
            let found = sources.any(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(&pattern)));
            ensure!(found, "there is no test {test}");
        }
        Ok(())
    }
}

/// Matches a command in the console's table.
const COMMAND: &str = r#"\bcommand\(\s*"([a-z]+)""#;
/// Matches the definition of an option of `pvm_setopt` in the header.
const OPTION: &str = r"(?m)^#define (Pvm(?:Self)?(?:Route|DebugMask|AutoErr|Output[A-Z][a-z]+|Trace(?:Tid|Code|Buffer|Options|Context)|FragSize|ResvTids|ShowTids|PollType|PollTime|NoReset|Backoff|McastRoute|GroupHost)) \d+";
/// Matches an environment variable.
const VARIABLE: &str = r#""(H?PVM[A-Z_]+)""#;
/// The files that read environment variables.
const VARIABLES_IN: &[&str] = &[
    "crates/libpvm3/src/spawn.rs",
    "crates/libpvm3/src/start.rs",
    "crates/pvm-fmp/src/endpoint/mod.rs",
    "crates/pvm-fmp/src/memory.rs",
    "crates/pvm-link/src/rendezvous/mod.rs",
    "crates/pvm-task/src/environment.rs",
    "crates/pvmd/src/processes/spawner.rs",
    "crates/pvmd/src/settings.rs",
];

/// Returns the texts in a file that the first group of a pattern matches.
fn quoted(file: &str, pattern: &str) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join(file)).with_context(|| format!("cannot read {file}"))?;
    let pattern = Regex::new(pattern)?;
    Ok(pattern.captures_iter(&text).map(|found| found[1].to_owned()).collect())
}

fn same(what: &str, items: &[Item], expected: BTreeSet<String>) -> Result<()> {
    let listed: BTreeSet<String> = items.iter().map(|item| item.name.clone()).collect();
    let different: Vec<&String> = listed.symmetric_difference(&expected).collect();
    ensure!(different.is_empty(), "{what}: docs/compatibility.toml and the sources differ in {different:?}");
    Ok(())
}
