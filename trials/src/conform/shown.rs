//! Collects what the cases show, for the tables in docs/compatibility.md.
use super::case::{self, Theirs};
use super::{compile, coverage, examples};
use crate::common;
use anyhow::Result;
use std::collections::BTreeSet;

/// The facts about a case that the tables need.
pub struct Shown {
    pub name: String,
    /// The source.
    pub text: String,
    /// The library functions and data that the program uses.
    pub uses: BTreeSet<String>,
    /// The words of a script, which include the programs that it runs.
    pub runs: Vec<String>,
    /// The expected differences. Each has the number of a defect or rule, the original's lines, and hpvm's lines.
    pub differences: Vec<(String, String, String)>,
    /// For a case that only hpvm passes: the defect, and what the original does with the case.
    pub ours_only: Option<(String, &'static str)>,
}

/// Returns all cases, compiled.
pub fn all() -> Result<Vec<Shown>> {
    let cases = case::find(&common::root().join("tests/conform"))?;
    compile::all(&cases)?;
    cases.iter().map(shown).collect()
}

/// Returns the names of Debian's programs that use PVM. Each of them must be run by at least one case.
pub fn programs() -> Result<Vec<String>> {
    examples::programs()
}

fn shown(case: &case::Case) -> Result<Shown> {
    let differences = case.differences.iter();
    let fate = |theirs: &Theirs| match theirs {
        Theirs::Crashes => "crashes",
        Theirs::Hangs => "hangs",
        Theirs::Skip => "is not run",
    };
    Ok(Shown {
        name: case.name.clone(),
        text: std::fs::read_to_string(&case.source)?,
        uses: coverage::uses(case)?,
        runs: examples::script_words(case)?,
        differences: differences.map(|one| (one.defect.clone(), one.theirs.clone(), one.ours.clone())).collect(),
        ours_only: case.ours_only.as_ref().map(|(defect, theirs)| (defect.clone(), fate(theirs))),
    })
}
