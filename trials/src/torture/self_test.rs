//! The test of the test: a deliberate error of each kind must make a run fail.
use super::{Plan, traffic};
use crate::common::Checks;
use anyhow::{Result, bail};
use std::path::Path;

/// The errors that a task can make. The report of each error must contain one of the words that follow its name.
const MUTATIONS: &[(&str, &[&str])] = &[
    ("drop", &["lost", "hang", "overtook", "overtaken"]),
    ("double", &["doubled"]),
    ("corrupt", &["damaged"]),
    ("swap", &["overtaken", "overtook"]),
    ("late", &["overtook"]),
    ("deaf", &["no exit notify"]),
    ("notify-twice", &["twice"]),
    ("leak-memory", &["memory of process"]),
    ("leak-descriptors", &["descriptors of process"]),
];

/// Runs a short torture with each of the errors.
pub fn run(plan: &Plan, program: &Path, checks: &mut Checks) -> Result<()> {
    for (mutation, words) in MUTATIONS {
        let plan = Plan {
            seconds: 2,
            round_seconds: 1,
            tasks: 6,
            patience: 3,
            mutation: Some(mutation),
            talkative: false,
            ..plan.clone()
        };
        let outcome = traffic(&plan, program)?;
        let said = match (&outcome.traffic, &outcome.memory) {
            (Err(error), _) | (Ok(_), Err(error)) => format!("{error:#}"),
            _ => String::new(),
        };
        let found = words.iter().any(|word| said.contains(word));
        let first = said.lines().next().unwrap_or("nothing").to_string();
        let result = if found { Ok(()) } else { (|| bail!("what was found: {first}"))() };
        checks.check(&format!("torture: the error \"{mutation}\" is found"), result);
    }
    Ok(())
}
