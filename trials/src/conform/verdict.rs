//! Compares the two sides of a case.

use super::case::{Case, Difference, Theirs};
use super::execute::{End, Runner};
use super::machine::Side;
use crate::common::root;
use crate::counts::Counts;
use crate::failures;
use anyhow::{Context, Result, bail};
use regex::{Captures, Regex};
use similar::TextDiff;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The result of a case.
pub enum Verdict {
    /// Both outputs are equal.
    Equal,
    /// The outputs differ as the contract requires; contains the names of the differences.
    Expected(String),
    /// The case was not run, for this reason.
    Skipped(String),
    /// The outputs differ; contains the diff.
    Differs(String),
}

impl Verdict {
    /// Returns the counts of the case.
    pub fn counts(&self) -> Counts {
        match self {
            Verdict::Skipped(_) => Counts { skipped: 1, ..Counts::default() },
            Verdict::Equal | Verdict::Expected(_) => Counts::one(true),
            Verdict::Differs(_) => Counts::one(false),
        }
    }
    /// Prints the result.
    pub fn print(&self, name: &str) {
        match self {
            Verdict::Equal => println!("ok       {name}"),
            Verdict::Expected(defects) => println!("ok       {name} (expected difference {defects})"),
            Verdict::Skipped(reason) => println!("skipped  {name}: {reason}"),
            Verdict::Differs(difference) => failures::report(format_args!("DIFFERS  {name}\n{difference}")),
        }
    }
}

/// Runs a case on both sides, and compares the outputs.
pub fn judge(worker: &mut impl Runner, case: &Case) -> Result<Verdict> {
    if let Some(missing) = case.needs.iter().find(|path| !path.exists()) {
        return Ok(Verdict::Skipped(format!("{} is missing", missing.display())));
    }
    let has_space = root().to_string_lossy().contains(' ');
    if let Some(reason) = case.no_space.as_ref().filter(|_| has_space) {
        return Ok(Verdict::Skipped(format!("the path of the source tree has a space: {reason}")));
    }
    if let Some((defect, theirs)) = &case.ours_only {
        return ours_only(worker, case, defect, *theirs);
    }
    let theirs = worker.run(case, Side::Theirs)?.text;
    let ours = worker.run(case, Side::Ours)?.text;
    match compare(case, &theirs, &ours) {
        // The original sometimes prints other output, or hangs. So the original runs a second time; hpvm runs only
        // once.
        Verdict::Differs(_) => Ok(compare(case, &worker.run(case, Side::Theirs)?.text, &ours)),
        verdict => Ok(verdict),
    }
}

/// Compares the outputs of both sides.
fn compare(case: &Case, theirs: &str, ours: &str) -> Verdict {
    let expected = match expected(theirs, &case.differences) {
        Ok(expected) => expected,
        Err(missing) => return Verdict::Differs(format!("{missing}\n{theirs}")),
    };
    if expected != ours {
        return Verdict::Differs(diff(&expected, ours));
    }
    if expected == theirs {
        return Verdict::Equal;
    }
    let mut defects: Vec<&str> = case.differences.iter().map(|difference| difference.defect.as_str()).collect();
    defects.dedup();
    Verdict::Expected(defects.join(" "))
}

/// Compares hpvm's output with the file of expected output, for a case that Debian's PVM does not pass.
fn ours_only(worker: &mut impl Runner, case: &Case, defect: &str, theirs: Theirs) -> Result<Verdict> {
    let path = case.source.with_extension("expected");
    let expected = std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    if theirs != Theirs::Skip {
        let outcome = worker.run(case, Side::Theirs)?;
        match (theirs, outcome.end) {
            (Theirs::Crashes, End::Signal(_)) | (Theirs::Hangs, End::Timeout) => {}
            (_, end) => bail!("Debian's PVM gave {end:?} where {theirs:?} is expected:\n{}", outcome.text),
        }
    }
    let ours = worker.run(case, Side::Ours)?;
    let expected = placed(&expected, &ours.text);
    match ours.text == expected {
        true => Ok(Verdict::Expected(defect.to_string())),
        false => Ok(Verdict::Differs(diff(&expected, &ours.text))),
    }
}

/// Matches a numbered tid; on several hosts, the number of its host follows.
static TID: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"t#\d+(@\d+)?").expect("a right pattern"));

/// Appends the host to each tid in `text`, as in `output`: `t#1` may become `t#1@2`. So the same expected text can be
/// used for runs on one host and on several hosts.
fn placed(text: &str, output: &str) -> String {
    let placed = TID.find_iter(output).filter_map(|found| Some((found.as_str().split_once('@')?.0, found.as_str())));
    let places: HashMap<&str, &str> = placed.collect();
    let place = |found: &Captures| places.get(&found[0]).copied().unwrap_or(&found[0]).to_string();
    TID.replace_all(text, place).into_owned()
}

/// Returns what hpvm has to print, given the output of Debian's PVM.
fn expected(theirs: &str, differences: &[Difference]) -> Result<String, String> {
    let mut text = format!("\n{theirs}");
    for difference in differences {
        let from = format!("\n{}\n", placed(&difference.theirs, theirs));
        let to = match difference.ours.as_str() {
            "(nothing)" => "\n".to_string(),
            lines => format!("\n{}\n", placed(lines, theirs)),
        };
        if text.contains(&from) {
            text = text.replacen(&from, &to, 1);
        } else if difference.always {
            return Err(format!("{}: Debian's PVM does not print `{}`", difference.defect, difference.theirs));
        }
    }
    Ok(text[1..].to_string())
}

fn diff(expected: &str, ours: &str) -> String {
    TextDiff::from_lines(expected, ours).unified_diff().header("Debian's PVM", "hpvm").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(theirs: &str, ours: &str, always: bool) -> Difference {
        Difference { defect: "D1".into(), theirs: theirs.into(), ours: ours.into(), always }
    }

    #[test]
    fn a_listed_difference_changes_whole_lines_only() {
        assert_eq!(expected("a: 1\na: 11\n", &[difference("a: 11", "a: 2", true)]).unwrap(), "a: 1\na: 2\n");
        assert!(expected("a: 11\n", &[difference("a: 1", "a: 2", true)]).is_err());
        assert_eq!(expected("a: 11\n", &[difference("a: 1", "a: 2", false)]).unwrap(), "a: 11\n");
        assert_eq!(expected("a\nb\n", &[difference("a", "(nothing)", true)]).unwrap(), "b\n");
    }

    #[test]
    fn a_listed_tid_is_on_whatever_host_it_is() {
        let listed = [difference("t#2: 1", "t#2: t#1", true)];
        assert_eq!(expected("t#1\nt#2: 1\n", &listed).unwrap(), "t#1\nt#2: t#1\n");
        assert_eq!(expected("t#1@1\nt#2@3: 1\n", &listed).unwrap(), "t#1@1\nt#2@3: t#1@1\n");
    }
}
